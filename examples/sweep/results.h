// The results of a sweep, as its tasks write them.

#ifndef RESULTS_H
#define RESULTS_H

enum {
    RUNS_MAX = 1024,
    PARAMS_MAX = 8,
    TEXT_MAX = 32,   // bytes of a parameter's name or value, with the end mark
    PATH_BYTES = 512,
    CLASSES = 10
};

typedef struct {
    char name[TEXT_MAX], value[TEXT_MAX];
} Param;

typedef struct {
    Param params[PARAMS_MAX];
    int param_count;
    double accuracy, loss;
    int confusion[CLASSES][CLASSES]; // [true digit][predicted digit]
    int has_accuracy, has_loss, has_confusion;
    char path[PATH_BYTES];
} Run;

extern Run runs[RUNS_MAX];
extern int run_count;

// Reads every result.json below the folder into runs; ends the program where one is not as it should be.
void read_results(const char *folder);

// Says on stderr what is wrong and ends the program.
_Noreturn void fail(const char *format, ...);

#endif
