/* A fake library with the functions and structures of nvml.h that kubenergy-gpu uses. It has two GPUs, the second one
   with two MIG instances. All counters advance with CLOCK_BOOTTIME, so that tests can predict them. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct { int index, instance; } device;
static device boards[2] = {{0, -1}, {1, -1}}, instances[2] = {{1, 0}, {1, 1}};

typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
typedef struct {
	unsigned int pid;
	unsigned long long timeStamp;
	unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
typedef struct {
	unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
		sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
	unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

static unsigned long long milliseconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

/* The process of the first board that the test names. */
static unsigned int first(void) {
	const char *pid = getenv("KUBENERGY_TEST_PID");
	return pid ? (unsigned int)atoi(pid) : 4101;
}

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned int *n) { *n = 2; return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int i, device **d) { *d = &boards[i]; return 0; }

int nvmlDeviceGetUUID(device *d, char *uuid, unsigned int length) {
	const char *id = d->index ? "GPU-bbbbbbbb-0000-4000-8000-000000000001" : "GPU-AAAAAAAA-0000-4000-8000-000000000000";
	if (length < strlen(id) + 1) return 7;
	strcpy(uuid, id);
	return 0;
}

/* 300 W and 200 W */
int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mJ) {
	*mJ = milliseconds() * (d->index ? 200 : 300);
	return 0;
}

int nvmlDeviceGetPowerUsage(device *d, unsigned int *mW) { *mW = d->index ? 200000 : 300000; return 0; }

int nvmlDeviceGetTemperature(device *d, int sensor, unsigned int *celsius) {
	if (sensor) return 2;
	*celsius = d->index ? 41 : 78;
	return 0;
}

int nvmlDeviceGetUtilizationRates(device *d, nvmlUtilization_t *u) {
	if (d->index) return 3;
	u->gpu = 90;
	u->memory = 40;
	return 0;
}

int nvmlDeviceGetMigMode(device *d, unsigned int *mode, unsigned int *pending) {
	*mode = *pending = d->index;
	return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned int *n) { *n = 7; return 0; }

int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned int i, device **mig) {
	if (i > 1) return 6;
	*mig = &instances[i];
	return 0;
}

int nvmlDeviceGetGpuInstanceId(device *d, unsigned int *id) { *id = d->instance ? 9 : 2; return 0; }

int nvmlDeviceGetComputeInstanceId(device *d, unsigned int *id) { *id = 0; return 0; }

int nvmlDeviceGetAttributes_v2(device *d, nvmlDeviceAttributes_t *a) {
	memset(a, 0, sizeof *a);
	a->gpuInstanceSliceCount = a->computeInstanceSliceCount = d->instance ? 1 : 3;
	a->multiprocessorCount = d->instance ? 16 : 60;
	a->memorySizeMB = 1 << 14;
	return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned int *n, nvmlProcessInfo_t *p) {
	if (*n < 2) return 7;
	memset(p, 0, 2 * sizeof *p);
	*n = d->index ? d->instance != 1 : 2;
	p[0].pid = d->index ? 4103 : first();
	p[0].usedGpuMemory = 5ULL << 30;
	p[0].gpuInstanceId = d->index ? 2 : 0xFFFFFFFF;
	p[0].computeInstanceId = d->index ? 0 : 0xFFFFFFFF;
	p[1].pid = 4102;
	p[1].usedGpuMemory = ~0ULL;
	p[1].gpuInstanceId = p[1].computeInstanceId = 0xFFFFFFFF;
	return 0;
}

/* One of the processes draws as well as computes; nothing else does. */
int nvmlDeviceGetGraphicsRunningProcesses_v3(device *d, unsigned int *n, nvmlProcessInfo_t *p) {
	if (d->index) { *n = 0; return 0; }
	return nvmlDeviceGetComputeRunningProcesses_v3(d, n, p);
}

int nvmlDeviceGetProcessUtilization(device *d, nvmlProcessUtilizationSample_t *s, unsigned int *n,
	unsigned long long since) {
	unsigned long long now = milliseconds() * 1000;
	if (d->index) return 3;
	if (*n < 2) return 7;
	if (since >= now) return 6;
	memset(s, 0, 2 * sizeof *s);
	*n = 2;
	s[0].pid = first();
	s[0].timeStamp = now - 500;
	s[0].smUtil = 60;
	s[1].pid = 4102;
	s[1].timeStamp = now;
	s[1].smUtil = 30;
	return 0;
}
