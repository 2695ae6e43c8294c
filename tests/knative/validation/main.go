// Runs Knative's own defaulting and validation, those of its webhooks, over the objects in YAML files.
//
// knative-validate FLAG=VALUE ... FILE ...: the flags are those of Serving's config-features. What Knative would keep
// of each object is printed; kinds that are not Knative's are left out. Ends with 1 when an object is refused.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	documents "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/fake"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	eventingv1alpha1 "knative.dev/eventing/pkg/apis/eventing/v1alpha1"
	"knative.dev/eventing/pkg/apis/feature"
	"knative.dev/eventing/pkg/apis/sinks"
	sinksv1alpha1 "knative.dev/eventing/pkg/apis/sinks/v1alpha1"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	"knative.dev/pkg/apis"
	"knative.dev/serving/pkg/apis/config"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	"knative.dev/serving/pkg/autoscaler/config/autoscalerconfig"
	"sigs.k8s.io/yaml"
)

type object interface {
	SetDefaults(context.Context)
	Validate(context.Context) *apis.FieldError
}

var kinds = map[string]func() object{
	"serving.knative.dev/v1/Service":            func() object { return &servingv1.Service{} },
	"eventing.knative.dev/v1/Trigger":           func() object { return &eventingv1.Trigger{} },
	"eventing.knative.dev/v1alpha1/EventPolicy": func() object { return &eventingv1alpha1.EventPolicy{} },
	"sinks.knative.dev/v1alpha1/JobSink":        func() object { return &sinksv1alpha1.JobSink{} },
	"sources.knative.dev/v1/PingSource":         func() object { return &sourcesv1.PingSource{} },
}

func main() {
	flags, files := map[string]string{}, []string{}
	for _, argument := range os.Args[1:] {
		if name, value, found := strings.Cut(argument, "="); found {
			flags[name] = value
		} else {
			files = append(files, argument)
		}
	}
	ctx, refused := apis.WithinCreate(settings(flags)), false
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(err)
		reader := documents.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			must(err)
			if err := check(ctx, document); err != nil {
				fmt.Fprintln(os.Stderr, file, err)
				refused = true
			}
		}
	}
	if refused {
		os.Exit(1)
	}
}

func check(ctx context.Context, document []byte) error {
	var known struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	must(yaml.Unmarshal(document, &known))
	fresh, found := kinds[known.APIVersion+"/"+known.Kind]
	if !found {
		return nil
	}
	one := fresh()
	if err := yaml.UnmarshalStrict(document, one); err != nil {
		return fmt.Errorf("%s %s: %w", known.Kind, known.Name, err)
	}
	one.SetDefaults(ctx)
	if err := one.Validate(ctx); err != nil {
		return fmt.Errorf("%s %s: %w", known.Kind, known.Name, err)
	}
	kept, err := yaml.Marshal(one)
	must(err)
	fmt.Printf("---\n%s", kept)
	return nil
}

// settings are those that `trainlet doctor --cluster` asks for, with the features that are given.
func settings(flags map[string]string) context.Context {
	features, err := config.NewFeaturesConfigFromMap(flags)
	must(err)
	defaults, err := config.NewDefaultsConfigFromMap(map[string]string{"max-revision-timeout-seconds": "3600"})
	must(err)
	scaling := &autoscalerconfig.Config{AllowZeroInitialScale: true}
	ctx := config.ToContext(context.Background(), &config.Config{Features: features, Defaults: defaults, Autoscaler: scaling})
	eventing := feature.FromContextOrDefaults(ctx)
	eventing[feature.OIDCAuthentication] = feature.Enabled
	ctx = feature.ToContext(ctx, eventing)
	// A JobSink is validated by a dry run of its Job; a real API server does that in the tests beside these.
	return sinks.WithConfig(ctx, &sinks.Config{KubeClient: fake.NewClientset()})
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
