/* A scripted libnvidia-ml.so.1: plays a timeline from the text file $NVML_SCRIPT, which is read again at each call.
 * Its language is in tests/nvml/__init__.py. Energy, GPM and all counters are exact integrals of the script, so that a
 * test knows the true answer. Layouts of structures are those of nvidia-ml-py. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10 };
enum { GPUS = 16, PARTS = 8, ROWS = 4096, SYSTEM = -1 };

typedef struct { double t; int dev; char key[64]; double v; } Row;
typedef struct { char of[PARTS + 1]; } Gpu; /* handle of GPU i: &gpus[i].of[0]; of its part p: &gpus[i].of[p + 1] */

static Row rows[ROWS], said[ROWS];
static int row_count, said_count, started;
static double start_ms;
static Gpu gpus[GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
u64 calls_made;

static double monotonic_ms(void) {
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    return s.tv_sec * 1e3 + s.tv_nsec / 1e6;
}

/* Number of a device in the script: i for GPU i, 100 * (i + 1) + p for its part p, written "i:p". */
static int number(const char *text) {
    int gpu, part;
    if (!strcmp(text, "sys")) return SYSTEM;
    return sscanf(text, "%d:%d", &gpu, &part) == 2 ? 100 * (gpu + 1) + part : atoi(text);
}

static void load(void) {
    if (row_count && getenv("NVML_SCRIPT_ONCE")) return;
    const char *path = getenv("NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], dev[16];
    row_count = 0;
    if (!file) return;
    while (row_count < ROWS && fgets(line, sizeof line, file)) {
        Row *r = &rows[row_count];
        if (line[0] != '#' && sscanf(line, "%lf %15s %63s %lf", &r->t, dev, r->key, &r->v) == 4) {
            r->dev = number(dev);
            row_count++;
        }
    }
    fclose(file);
}

/* The last row not after t. */
static int find(int dev, const char *key, double t, double *out) {
    int hit = 0;
    double latest = -1e300;
    for (int i = 0; i < row_count; i++)
        if (rows[i].dev == dev && rows[i].t <= t && rows[i].t >= latest && !strcmp(rows[i].key, key)) {
            latest = rows[i].t;
            *out = rows[i].v;
            hit = 1;
        }
    return hit;
}

static double value(int dev, const char *key, double t, double otherwise) {
    double v;
    return find(dev, key, t, &v) ? v : otherwise;
}

static double now_ms(void) {
    double v;
    if (find(SYSTEM, "now_ms", 1e300, &v)) return v;
    return monotonic_ms() - (find(SYSTEM, "since_ms", 1e300, &v) ? v : start_ms);
}

/* Integral of a step function, value * ms. */
static double integral(int dev, const char *key, double from, double to) {
    double sum = 0, t = from;
    while (t < to) {
        double next = to;
        for (int i = 0; i < row_count; i++)
            if (rows[i].dev == dev && rows[i].t > t && rows[i].t < next && !strcmp(rows[i].key, key)) next = rows[i].t;
        sum += value(dev, key, t, 0) * (next - t);
        t = next;
    }
    return sum;
}

/* Counters move in steps of refresh_ms. */
static double refreshed(double t) {
    double step = value(SYSTEM, "refresh_ms", t, 0);
    return step > 0 ? floor(t / step) * step : t;
}

static int of_handle(void *handle) {
    long at = (char *)handle - (char *)gpus;
    int gpu = (int)(at / (long)sizeof(Gpu)), part = (int)(at % (long)sizeof(Gpu));
    if (at < 0 || gpu >= GPUS) return -2;
    return part ? 100 * (gpu + 1) + part - 1 : gpu;
}

static void *to_handle(int dev) { return dev < 100 ? &gpus[dev].of[0] : &gpus[dev / 100 - 1].of[dev % 100 + 1]; }

static const char *of_parts[] = {"DeviceGetUUID", "DeviceGetName", "DeviceGetMemoryInfo", "DeviceGetMemoryInfo_v2",
                                 "DeviceGetGpuInstanceId", "DeviceGetFieldValues", NULL};

/* As long as the script says so; whoever calls meanwhile waits, too. The file "$NVML_SCRIPT.hangs" tells of it. */
static void hang(int dev, const char *key) {
    double v;
    while (find(dev, key, now_ms(), &v) && v) {
        char name[512];
        snprintf(name, sizeof name, "%s.hangs", getenv("NVML_SCRIPT"));
        FILE *file = fopen(name, "w");
        if (file) fclose(file);
        if (value(SYSTEM, "spins", 1e300, 0)) continue;
        usleep(5000);
        load();
    }
}

/* What is common to all calls: state, faults, latency. */
static int enter(void *handle, const char *name, int *dev, double *t) {
    char key[80];
    double v;
    __sync_fetch_and_add(&calls_made, 1);
    if (!started) return UNINITIALIZED;
    load();
    *t = now_ms();
    *dev = handle ? of_handle(handle) : SYSTEM;
    int gpu = *dev >= 100 ? *dev / 100 - 1 : *dev;
    if (handle && (gpu < 0 || gpu >= (int)value(SYSTEM, "count", *t, 1))) return INVALID;
    snprintf(key, sizeof key, "delay_us.%s", name);
    if (find(*dev, key, *t, &v)) usleep((useconds_t)v);
    snprintf(key, sizeof key, "hang.%s", name);
    hang(*dev, key);
    if (handle) hang(gpu, "hang");
    if (handle && find(gpu, "lost", *t, &v) && v) return (int)v;
    snprintf(key, sizeof key, "err.%s", name);
    if (find(*dev, key, *t, &v) && v) return (int)v;
    if (*dev >= 100) {
        const char **one = of_parts;
        while (*one && strcmp(*one, name)) one++;
        if (!*one) return UNSUPPORTED;
    }
    return OK;
}

#define ENTER(handle) \
    int dev, rc; \
    double t; \
    pthread_mutex_lock(&lock); \
    rc = enter(handle, __func__ + 4, &dev, &t); \
    (void)dev; \
    if (rc) LEAVE(rc)
#define LEAVE(code) \
    do { \
        pthread_mutex_unlock(&lock); \
        return (code); \
    } while (0)
#define GAUGE(name, type, key, otherwise) \
    int name(void *h, type *out) { \
        ENTER(h); \
        *out = (type)value(dev, key, t, otherwise); \
        LEAVE(OK); \
    }

int nvmlInitWithFlags(u32 flags) {
    double v;
    (void)flags;
    pthread_mutex_lock(&lock);
    if (!started) row_count = 0;
    load();
    if (find(SYSTEM, "err.InitWithFlags", 1e300, &v) && v) LEAVE((int)v);
    if (!started++) {
        start_ms = monotonic_ms();
        said_count = 0;
    }
    LEAVE(OK);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return started ? (started--, OK) : UNINITIALIZED; }
const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "scripted error %d", code);
    return text;
}
int nvmlSystemGetDriverVersion(char *out, u32 n) { ENTER(NULL); snprintf(out, n, "999.0-scripted"); LEAVE(OK); }
int nvmlSystemGetNVMLVersion(char *out, u32 n) { ENTER(NULL); snprintf(out, n, "13.999.0"); LEAVE(OK); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { ENTER(NULL); *out = 13000; LEAVE(OK); }

/* Devices. */
int nvmlDeviceGetCount_v2(u32 *n) { ENTER(NULL); *n = (u32)value(SYSTEM, "count", t, 1); LEAVE(OK); }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **out) {
    ENTER(NULL);
    double v;
    if (i >= value(SYSTEM, "count", t, 1)) LEAVE(INVALID);
    hang((int)i, "hang");
    if (find((int)i, "err.DeviceGetHandleByIndex_v2", t, &v) && v) LEAVE((int)v);
    if (find((int)i, "lost", t, &v) && v) LEAVE((int)v);
    *out = to_handle((int)i);
    LEAVE(OK);
}
static void uuid(int dev, char *out, size_t n) {
    if (dev < 100) snprintf(out, n, "GPU-00000000-0000-4000-8000-%012x", dev);
    else snprintf(out, n, "MIG-00000000-0000-4000-8000-%06x%06x", dev / 100 - 1, dev % 100);
}
int nvmlDeviceGetHandleByUUID(const char *wanted, void **out) {
    ENTER(NULL);
    char one[64];
    double v;
    for (int gpu = 0; gpu < (int)value(SYSTEM, "count", t, 1); gpu++)
        for (int part = 0; part <= (int)value(gpu, "mig", t, 0); part++) {
            int found = part ? 100 * (gpu + 1) + part - 1 : gpu;
            uuid(found, one, sizeof one);
            if (strcmp(one, wanted)) continue;
            if (find(gpu, "lost", t, &v) && v) LEAVE((int)v);
            *out = to_handle(found);
            LEAVE(OK);
        }
    LEAVE(NOT_FOUND);
}
int nvmlDeviceGetIndex(void *h, u32 *out) { ENTER(h); *out = (u32)dev; LEAVE(OK); }
int nvmlDeviceGetUUID(void *h, char *out, u32 n) { ENTER(h); uuid(dev, out, n); LEAVE(OK); }
int nvmlDeviceGetName(void *h, char *out, u32 n) {
    ENTER(h);
    snprintf(out, n, dev < 100 ? "Scripted H200" : "Scripted H200 MIG 1g.18gb");
    LEAVE(OK);
}
int nvmlDeviceGetMigMode(void *h, u32 *now, u32 *pending) {
    ENTER(h);
    *now = *pending = value(dev, "mig", t, 0) > 0;
    LEAVE(OK);
}
int nvmlDeviceGetMaxMigDeviceCount(void *h, u32 *out) { ENTER(h); *out = 7; LEAVE(OK); }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, u32 i, void **out) {
    ENTER(h);
    if (i >= value(dev, "mig", t, 0)) LEAVE(NOT_FOUND);
    *out = to_handle(100 * (dev + 1) + (int)i);
    LEAVE(OK);
}
int nvmlDeviceGetGpuInstanceId(void *h, u32 *out) {
    ENTER(h);
    if (dev < 100) LEAVE(UNSUPPORTED);
    *out = (u32)(dev % 100 + 1);
    LEAVE(OK);
}

/* Gauges. */
int nvmlDeviceGetUtilizationRates(void *h, u32 *out) {
    ENTER(h);
    if (value(dev, "mig", t, 0)) LEAVE(UNSUPPORTED);
    out[0] = (u32)value(dev, "util", t, 0);
    out[1] = (u32)value(dev, "memutil", t, 0);
    LEAVE(OK);
}
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(void *h, Memory2 *out) {
    ENTER(h);
    out->total = (u64)value(dev, "mem_total", t, 1.5e11);
    out->used = (u64)value(dev, "mem_used", t, 0);
    out->reserved = 1 << 20;
    out->free = out->total - out->used - out->reserved;
    LEAVE(OK);
}
int nvmlDeviceGetMemoryInfo(void *h, u64 *out) {
    ENTER(h);
    out[0] = (u64)value(dev, "mem_total", t, 1.5e11);
    out[2] = (u64)value(dev, "mem_used", t, 0) + (1 << 20);
    out[1] = out[0] - out[2];
    LEAVE(OK);
}
GAUGE(nvmlDeviceGetPowerUsage, u32, "power_mw", 0)
GAUGE(nvmlDeviceGetEnforcedPowerLimit, u32, "limit_mw", 700000)
GAUGE(nvmlDeviceGetCurrentClocksEventReasons, u64, "reasons", 0)
GAUGE(nvmlDeviceGetCurrentClocksThrottleReasons, u64, "reasons", 0)
int nvmlDeviceGetTemperature(void *h, int sensor, u32 *out) {
    ENTER(h);
    (void)sensor;
    *out = (u32)value(dev, "temp", t, 40);
    LEAVE(OK);
}
int nvmlDeviceGetClockInfo(void *h, int which, u32 *out) {
    ENTER(h);
    (void)which;
    *out = (u32)value(dev, "sm_clk", t, 1980);
    LEAVE(OK);
}
int nvmlDeviceGetTotalEccErrors(void *h, int error, int counter, u64 *out) {
    ENTER(h);
    (void)error, (void)counter;
    *out = (u64)value(dev, "ecc", t, 0);
    LEAVE(OK);
}

GAUGE(nvmlDeviceGetMaxPcieLinkGeneration, u32, "pcie_gen", 5)
GAUGE(nvmlDeviceGetMaxPcieLinkWidth, u32, "pcie_width", 16)

/* Counters. */
int nvmlDeviceGetTotalEnergyConsumption(void *h, u64 *out) {
    ENTER(h);
    *out = (u64)(integral(dev, "power_mw", 0, refreshed(t)) / 1e3);
    LEAVE(OK);
}
typedef struct { u64 at_us, violation_ns; } Violation;
int nvmlDeviceGetViolationStatus(void *h, int policy, Violation *out) {
    ENTER(h);
    char key[32];
    snprintf(key, sizeof key, "held.%d", policy);
    out->at_us = (u64)(t * 1e3);
    out->violation_ns = (u64)(integral(dev, key, 0, refreshed(t)) * 1e6);
    LEAVE(OK);
}
typedef struct { u32 id, scope; long long at_us, cost_us; u32 type; int ret; u64 v; } Field;
int nvmlDeviceGetFieldValues(void *h, int n, Field *fields) {
    ENTER(h);
    char constant[32], rate[32], error[32], type[32];
    double v, power;
    for (Field *f = fields; f < fields + n; f++) {
        int scoped = f->scope != 0 && f->scope != 0xFFFFFFFF;
        snprintf(constant, 32, scoped ? "fi.%u.%u" : "fi.%u", f->id, f->scope);
        snprintf(rate, 32, scoped ? "fir.%u.%u" : "fir.%u", f->id, f->scope);
        snprintf(error, 32, "fe.%u", f->id);
        snprintf(type, 32, "ft.%u", f->id);
        f->at_us = (long long)(t * 1e3);
        f->cost_us = 1;
        f->type = (u32)value(dev, type, t, 3);
        f->ret = (int)value(dev, error, t, OK);
        f->v = 0;
        /* Of a part of a GPU, drivers say "success" and 0. */
        if (f->ret || dev >= 100) continue;
        if (f->id == 83) f->v = (u64)(integral(dev, "power_mw", 0, refreshed(t)) / 1e3);
        else if (f->id == 186 && find(dev, "power_mw", t, &power)) f->v = (u64)power;
        else if (find(dev, constant, t, &v)) f->v = (u64)v;
        else if (find(dev, rate, 1e300, &v)) f->v = (u64)(integral(dev, rate, 0, refreshed(t)) / 1e3);
        else f->ret = UNSUPPORTED;
        if (f->type == 0 && !f->ret) { /* double */
            double d = (double)f->v;
            memcpy(&f->v, &d, sizeof d);
        }
        if (f->type == 1) f->v &= 0xFFFFFFFF;
    }
    LEAVE(OK);
}

/* GPM. */
typedef struct { int dev; double t; } Sample;
typedef struct { u32 id; int ret; double v; char *name, *group, *unit; } Metric;
typedef struct { u32 version, n; Sample *a, *b; Metric metrics[]; } Metrics;
int nvmlGpmQueryDeviceSupport(void *h, u32 *out) { ENTER(h); out[1] = (u32)value(dev, "gpm", t, 1); LEAVE(OK); }
int nvmlGpmSampleAlloc(Sample **out) { return (*out = calloc(1, sizeof **out)) ? OK : 20; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }
static int take(int dev, double t, Sample *sample) {
    if (!value(dev, "gpm", t, 1)) return UNSUPPORTED;
    sample->dev = dev;
    sample->t = refreshed(t);
    return OK;
}
int nvmlGpmSampleGet(void *h, Sample *sample) { ENTER(h); LEAVE(take(dev, t, sample)); }
int nvmlGpmMigSampleGet(void *h, u32 instance, Sample *sample) {
    ENTER(h);
    if (instance < 1 || instance > value(dev, "mig", t, 0)) LEAVE(INVALID);
    LEAVE(take(100 * (dev + 1) + (int)instance - 1, t, sample));
}
int nvmlGpmMetricsGet(Metrics *get) {
    int owner = get->a->dev;
    ENTER(to_handle(owner >= 100 ? owner / 100 - 1 : owner));
    char key[32];
    double v, length = get->b->t - get->a->t;
    if (get->version != 1) LEAVE(25);
    for (u32 i = 0; i < get->n; i++) {
        Metric *m = &get->metrics[i];
        snprintf(key, sizeof key, "gpm.%u", m->id);
        m->ret = find(owner, key, 1e300, &v) ? OK : UNSUPPORTED;
        /* Of an empty window, drivers say "success" and no number, or 0 if it is a rate. */
        double empty = m->id < 20 ? NAN : 0;
        m->v = m->ret ? 0 : length > 0 ? integral(owner, key, get->a->t, get->b->t) / length : empty;
        m->name = m->group = m->unit = "";
    }
    LEAVE(OK);
}

/* Events: each row "xid" once. */
typedef struct { void *device; u64 type, data; u32 instance, compute; } Event;
int nvmlEventSetCreate(void **out) { static int set; ENTER(NULL); *out = &set; LEAVE(OK); }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(void *h, u64 types, void *set) { ENTER(h); (void)types, (void)set; LEAVE(OK); }
int nvmlEventSetWait_v2(void *set, Event *out, u32 timeout_ms) {
    double v;
    ENTER(NULL);
    (void)set;
    for (Row *r = rows; r < rows + row_count; r++) {
        if (strcmp(r->key, "xid") || r->t > t) continue;
        int known = 0;
        for (int i = 0; i < said_count; i++) known |= said[i].t == r->t && said[i].dev == r->dev && said[i].v == r->v;
        if (known || said_count == ROWS) continue;
        said[said_count++] = *r;
        *out = (Event){to_handle(r->dev), 8, (u64)r->v, 0xFFFFFFFF, 0xFFFFFFFF};
        LEAVE(OK);
    }
    int virtual = find(SYSTEM, "now_ms", 1e300, &v);
    pthread_mutex_unlock(&lock);
    if (!virtual) usleep(timeout_ms * 1000);
    return TIMEOUT;
}
