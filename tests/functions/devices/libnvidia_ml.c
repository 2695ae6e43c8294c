/* A stand-in for NVIDIA's management library: an H100, an A100 cut into two MIG slices, and a GPU that was lost. */
#include <string.h>

typedef int Result;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { const char *name, *uuid; unsigned long long bytes; int mig; } Device;

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPU_IS_LOST = 15 };

static Device gpus[] = {
    {"NVIDIA H100 80GB HBM3", "GPU-h100", 85520809984ULL, 0},
    {"NVIDIA A100-SXM4-80GB", "GPU-a100", 85899345920ULL, 1},
};
static Device slices[] = {
    {"NVIDIA A100-SXM4-80GB MIG 1g.10gb", "MIG-one", 10200547328ULL, 0},
    {"NVIDIA A100-SXM4-80GB MIG 3g.40gb", "MIG-three", 42412802048ULL, 0},
};

Result nvmlInit_v2(void) { return OK; }
Result nvmlInitWithFlags(unsigned flags) { return OK; }
Result nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(Result result) { return result == GPU_IS_LOST ? "GPU is lost" : "error"; }

Result nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return OK; }

Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index > 1) return GPU_IS_LOST;
    *device = &gpus[index];
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
    memory->total = memory->free = device->bytes;
    memory->used = 0;
    return OK;
}

Result nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    if (device == &gpus[0]) return NOT_SUPPORTED;
    *current = *pending = device->mig;
    return OK;
}

Result nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) { *count = 7; return OK; }

Result nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
    if (index != 0 && index != 4) return NOT_FOUND;  /* slices leave gaps */
    *slice = &slices[index / 4];
    return OK;
}
