/* A stand-in for libnvidia-ml.so.1 with one or two GPUs, for tests. What it plays is chosen when it is compiled:
 *   (nothing)   one healthy A100 80GB
 *   BARE        a driver that knows the name of a GPU and nothing else: the functions do not exist
 *   REFUSING    the functions exist and answer "not supported"
 *   BLANKS      every value is a mark for "unknown"
 *   SECOND_LOST a second GPU that is counted and has fallen off the bus
 *   LOST_FILE   a path: while a file is there, the GPU has fallen off the bus
 *   INIT        the answer of the initialisation, such as 9 (no driver) or 18 (another version)
 * Only what the tests ask for exists. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int word;
typedef unsigned long long quad;
typedef struct { word version; quad total, reserved, free, used; } memory_v2;
typedef struct { char legacy[16]; word domain, bus, device, id, subsystem; char bus_id[32]; } pci_v3;
typedef struct { word gpu, memory; } rates;

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, LOST = 15 };

#ifndef INIT
#define INIT OK
#endif
#ifdef SECOND_LOST
#define COUNT 2
#else
#define COUNT 1
#endif
#ifdef BLANKS
#define VALUE(real, blank) (blank)
#else
#define VALUE(real, blank) (real)
#endif
#ifdef REFUSING
#define REFUSE return NOT_SUPPORTED
#else
#define REFUSE
#endif

#define BLANK32 0x7ffffff2u
#define BLANK64 9223372036854775794ull

static int board;

static word state(void *device) {
    if (device != &board) return INVALID;
#ifdef LOST_FILE
    if (access(LOST_FILE, F_OK) == 0) return LOST;
#endif
    return OK;
}

static word text(char *to, word size, const char *from) {
    if (size <= strlen(from)) return TOO_SMALL;
    strcpy(to, from);
    return OK;
}

#define ASK do { word s = state(device); if (s != OK) return s; } while (0)

word nvmlInit_v2(void) { return INIT; }
word nvmlShutdown(void) { return OK; }
word nvmlDeviceGetCount_v2(word *count) { *count = COUNT; return OK; }
word nvmlDeviceGetHandleByIndex_v2(word index, void **device) {
    if (index == 1 && COUNT == 2) return LOST;
    if (index != 0) return INVALID;
    *device = &board;
    return OK;
}
word nvmlDeviceGetName(void *device, char *to, word size) { ASK; return text(to, size, "NVIDIA A100-SXM4-80GB"); }

#ifndef BARE
word nvmlSystemGetDriverVersion(char *to, word size) { return text(to, size, VALUE("550.54.15", "[N/A]")); }
word nvmlDeviceGetUUID(void *device, char *to, word size) {
    ASK; REFUSE;
    return text(to, size, VALUE("GPU-11111111-2222-3333-4444-555555555555", "<<<NULL>>>"));
}
word nvmlDeviceGetPciInfo_v3(void *device, pci_v3 *pci) {
    ASK; REFUSE;
    memset(pci, 0, sizeof *pci);
    return text(pci->bus_id, sizeof pci->bus_id, VALUE("00000000:17:00.0", "N/A"));
}
word nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2 *memory) {
    ASK; REFUSE;
    if (memory->version != (sizeof *memory | 2u << 24)) return INVALID;
    memory->total = VALUE(85899345920ull, BLANK64);
    memory->used = VALUE(1073741824ull, ~0ull);
    memory->reserved = 0;
    memory->free = memory->total - memory->used;
    return OK;
}
word nvmlDeviceGetMigMode(void *device, word *now, word *next) { ASK; REFUSE; *now = *next = VALUE(0, ~0u); return OK; }
word nvmlDeviceGetEccMode(void *device, word *now, word *next) { ASK; REFUSE; *now = *next = VALUE(1, BLANK32); return OK; }
word nvmlDeviceGetEnforcedPowerLimit(void *device, word *limit) { ASK; REFUSE; *limit = VALUE(400000, ~0u); return OK; }
word nvmlDeviceGetPowerUsage(void *device, word *power) { ASK; REFUSE; *power = VALUE(71500, BLANK32); return OK; }
word nvmlDeviceGetTemperature(void *device, word sensor, word *celsius) {
    ASK; REFUSE;
    if (sensor != 0) return INVALID;
    *celsius = VALUE(41, BLANK32);
    return OK;
}
word nvmlDeviceGetUtilizationRates(void *device, rates *busy) {
    ASK; REFUSE;
    busy->gpu = VALUE(37, BLANK32);
    busy->memory = 0;
    return OK;
}
#endif
