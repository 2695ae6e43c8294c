/* A stand-in for NVIDIA's management library: an H100, an A100 cut into two MIG slices, a GPU that was lost, and a T4.

   The first letter of the file that NVML_STATE names says how it goes: `l` the H100 is lost, `g` the driver is gone,
   `r` the driver was loaded again and counts energy anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { const char *name, *uuid; unsigned long long bytes; int mig; } Device;

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };

static Device gpus[] = {
    {"NVIDIA H100 80GB HBM3", "GPU-h100", 85520809984ULL, 0},
    {"NVIDIA A100-SXM4-80GB", "GPU-a100", 85899345920ULL, 1},
    {"Tesla T4", "GPU-t4", 16106127360ULL, 0},
};
static Device slices[] = {
    {"NVIDIA A100-SXM4-80GB MIG 1g.10gb", "MIG-one", 10200547328ULL, 0},
    {"NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-three", 42412802048ULL, 0},
};

static char state(void) {
    const char *path = getenv("NVML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    int letter = file ? fgetc(file) : ' ';
    if (file) fclose(file);
    return (char)letter;
}

static Result trouble(Device *device) {
    char now = state();
    if (now == 'g') return DRIVER_NOT_LOADED;
    return now == 'l' && device == &gpus[0] ? GPU_IS_LOST : OK;
}

static int is_slice(Device *device) { return device == &slices[0] || device == &slices[1]; }

Result nvmlInit_v2(void) { return trouble(NULL); }
Result nvmlInitWithFlags(unsigned flags) { return trouble(NULL); }
Result nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(Result result) { return result == GPU_IS_LOST ? "GPU is lost" : "error"; }

Result nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return OK; }

Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index == 2) return GPU_IS_LOST;
    *device = &gpus[index < 2 ? index : 2];
    return OK;
}

Result nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
    Device *all[] = {&gpus[0], &gpus[1], &gpus[2], &slices[0], &slices[1]};
    for (int index = 0; index < 5; index++) {
        if (strcmp(all[index]->uuid, uuid)) continue;
        *device = all[index];
        return trouble(*device);
    }
    return NOT_FOUND;
}

Result nvmlDeviceGetUtilizationRates(Device *device, Rates *rates) {
    if (trouble(device)) return trouble(device);
    if (is_slice(device)) return NOT_SUPPORTED;
    rates->gpu = device == &gpus[0] ? 75 : 20;
    rates->memory = 10;
    return OK;
}

Result nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
    if (trouble(device)) return trouble(device);
    if (is_slice(device)) return NOT_SUPPORTED;
    *milliwatts = device == &gpus[0] ? 500000 : 60000;
    return OK;
}

Result nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
    static unsigned long long counter = 1000000;
    if (trouble(device)) return trouble(device);
    if (device != &gpus[0]) return NOT_SUPPORTED;
    *millijoules = state() == 'r' ? 5 : (counter += 500000);
    return OK;
}

Result nvmlDeviceGetName(Device *device, char *name, unsigned length) {
    strncpy(name, device->name, length);
    return OK;
}

Result nvmlDeviceGetUUID(Device *device, char *uuid, unsigned length) {
    strncpy(uuid, device->uuid, length);
    return OK;
}

Result nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    if (trouble(device)) return trouble(device);
    memory->total = device->bytes;
    memory->used = device->bytes / 2;
    memory->free = memory->total - memory->used;
    return OK;
}

Result nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    if (device != &gpus[1]) return NOT_SUPPORTED;
    *current = *pending = device->mig;
    return OK;
}

Result nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { *count = 7; return OK; }

Result nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    if (index != 0 && index != 4) return NOT_FOUND;  /* slices leave gaps */
    *slice = &slices[index / 4];
    return OK;
}
