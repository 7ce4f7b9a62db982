// Trains a classifier of handwritten digits and reports how well one set of hyper-parameters does.
//
//   sweep --lr 0.1 --hidden 64 --seed 0 --data /in/digits.csv [--epochs 50] [--out /out/result.json]
//
// The model is a neural network with one hidden layer (64 inputs, ReLU, softmax over 10 digits), trained by
// stochastic gradient descent with momentum. A quarter of the rows is kept for testing; the split is the same for
// every task, so results can be compared. The same arguments give the same bytes on every machine: the random
// numbers come from a seed, and floating point in WebAssembly is exactly defined.

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIXELS = 64,         // an image is 8 x 8
    PIXEL_MAX = 16,      // and its pixels are 0 to 16
    CLASSES = 10,
    ROWS_MAX = 4096,     // the data set has 1,797
    HIDDEN_MAX = 1024,
    EPOCHS_MAX = 10000,
    BATCH = 16,          // rows between two steps of the weights
    TEST_EVERY = 4,      // one row in four is for testing
    SPLIT_SEED = 20      // of the shuffle that makes the split: fixed, whatever --seed is
};

static const double MOMENTUM = 0.9;

typedef struct {
    float pixels[PIXELS];
    int label;
} Row;

typedef struct {
    const char *lr, *hidden, *seed, *epochs, *data, *out;
} Args;

// The weights of one layer, with the gradient of the current batch and the momentum of past steps.
typedef struct {
    int inputs, outputs, count; // count: weights and biases together
    float *weight, *gradient, *speed;
} Layer;

typedef struct {
    Layer first, second;
    float *active;                  // hidden units after ReLU
    float *active_error;            // the loss's derivative by them
    float probability[CLASSES];
} Model;

typedef struct {
    double loss, accuracy;
    int confusion[CLASSES][CLASSES]; // [true digit][predicted digit]
} Score;

static Row rows[ROWS_MAX];

static void fail(const char *what, const char *value)
{
    fprintf(stderr, "sweep: %s: %s\n", what, value);
    exit(2);
}

// splitmix64: small, and good enough to shuffle rows and to draw first weights.
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state)
{
    return (double)(next_random(state) >> 11) / 9007199254740992.0; // 2^53
}

static void shuffle(int *order, int n, uint64_t *state)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(next_random(state) % (uint64_t)(i + 1));
        int kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

static Args parse_args(int argc, char **argv)
{
    Args args = {.epochs = "50", .out = "/out/result.json"};
    struct {
        const char *name, **value;
    } known[] = {{"--lr", &args.lr},         {"--hidden", &args.hidden}, {"--seed", &args.seed},
                 {"--epochs", &args.epochs}, {"--data", &args.data},     {"--out", &args.out}};
    const int kinds = sizeof known / sizeof known[0];

    for (int i = 1; i < argc; i += 2) {
        int k = 0;
        while (k < kinds && strcmp(argv[i], known[k].name) != 0)
            k++;
        if (k == kinds)
            fail("unknown argument, use --lr --hidden --seed --epochs --data --out", argv[i]);
        if (i + 1 == argc)
            fail("this argument needs a value", argv[i]);
        *known[k].value = argv[i + 1];
    }
    for (int k = 0; k < kinds; k++)
        if (*known[k].value == NULL)
            fail("this argument is missing", known[k].name);
    return args;
}

static double number(const char *name, const char *text, double low, double high)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high)) {
        fprintf(stderr, "sweep: %s must be a number from %g to %g, not \"%s\"\n", name, low, high, text);
        exit(2);
    }
    return value;
}

static int whole(const char *name, const char *text, int low, int high)
{
    double value = number(name, text, low, high);
    if (value != floor(value))
        fail("must be a whole number", name);
    return (int)value;
}

// Reads lines of 64 pixels and a label, with commas between; returns the number of rows.
static int read_rows(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail(strerror(errno), path);

    char line[1024];
    int n = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (n == ROWS_MAX)
            fail("too many rows, at most 4096 are read", path);
        char *at = line;
        for (int i = 0; i <= PIXELS; i++) {
            char *end;
            long value = strtol(at, &end, 10);
            long top = i < PIXELS ? PIXEL_MAX : CLASSES - 1;
            if (end == at || value < 0 || value > top || (i < PIXELS && *end != ',')) {
                fprintf(stderr, "sweep: %s:%d: value %d of 65 is not 0 to %ld\n", path, n + 1, i + 1, top);
                exit(2);
            }
            if (i < PIXELS)
                rows[n].pixels[i] = (float)value / PIXEL_MAX;
            else
                rows[n].label = (int)value;
            at = end + 1;
        }
        n++;
    }
    fclose(file);
    if (n < TEST_EVERY * 2)
        fail("too few rows to train with", path);
    return n;
}

static float *floats(int n)
{
    float *p = calloc((size_t)n, sizeof *p);
    if (p == NULL)
        fail("out of memory", "weights");
    return p;
}

static Layer new_layer(int inputs, int outputs, uint64_t *random)
{
    Layer layer = {.inputs = inputs, .outputs = outputs, .count = (inputs + 1) * outputs};
    layer.weight = floats(layer.count);
    layer.gradient = floats(layer.count);
    layer.speed = floats(layer.count);
    double reach = sqrt(6.0 / inputs); // He's initialisation, which suits ReLU
    for (int i = 0; i < inputs * outputs; i++)
        layer.weight[i] = (float)((uniform(random) * 2 - 1) * reach);
    return layer;
}

// out = weights x in + biases; the biases follow the weights.
static void apply(const Layer *layer, const float *in, float *out)
{
    const float *bias = layer->weight + layer->inputs * layer->outputs;
    for (int o = 0; o < layer->outputs; o++) {
        const float *w = layer->weight + o * layer->inputs;
        float sum = bias[o];
        for (int i = 0; i < layer->inputs; i++)
            sum += w[i] * in[i];
        out[o] = sum;
    }
}

// Adds one row's gradient; where wanted, also passes the error back to the layer's inputs.
static void add_gradient(Layer *layer, const float *in, const float *error, float *in_error)
{
    float *bias = layer->gradient + layer->inputs * layer->outputs;
    if (in_error != NULL)
        memset(in_error, 0, sizeof *in_error * (size_t)layer->inputs);
    for (int o = 0; o < layer->outputs; o++) {
        float e = error[o];
        if (e == 0)
            continue; // a hidden unit that is off
        float *g = layer->gradient + o * layer->inputs;
        const float *w = layer->weight + o * layer->inputs;
        for (int i = 0; i < layer->inputs; i++)
            g[i] += e * in[i];
        if (in_error != NULL)
            for (int i = 0; i < layer->inputs; i++)
                in_error[i] += e * w[i];
        bias[o] += e;
    }
}

static void step(Layer *layer, double lr, int batch)
{
    float scale = (float)(lr / batch);
    for (int i = 0; i < layer->count; i++) {
        layer->speed[i] = (float)MOMENTUM * layer->speed[i] - scale * layer->gradient[i];
        layer->weight[i] += layer->speed[i];
        layer->gradient[i] = 0;
    }
}

// Fills the probabilities of the digits for one image; returns the loss (cross-entropy) against the label.
static double predict(Model *model, const Row *row)
{
    apply(&model->first, row->pixels, model->active);
    for (int i = 0; i < model->first.outputs; i++)
        if (model->active[i] < 0)
            model->active[i] = 0;
    apply(&model->second, model->active, model->probability);

    float top = model->probability[0];
    for (int c = 1; c < CLASSES; c++)
        if (model->probability[c] > top)
            top = model->probability[c];
    double sum = 0, raw[CLASSES];
    for (int c = 0; c < CLASSES; c++) {
        raw[c] = exp((double)(model->probability[c] - top));
        sum += raw[c];
    }
    for (int c = 0; c < CLASSES; c++)
        model->probability[c] = (float)(raw[c] / sum);
    double p = raw[row->label] / sum;
    return -log(p > 1e-12 ? p : 1e-12);
}

// One pass over the training rows in a fresh order; returns the mean loss on the way.
static double train_epoch(Model *model, int *order, int n, double lr, uint64_t *random)
{
    double loss = 0;
    shuffle(order, n, random);
    for (int at = 0, batch = 0; at < n; at++) {
        const Row *row = &rows[order[at]];
        loss += predict(model, row);

        model->probability[row->label] -= 1; // softmax and cross-entropy: the error is p - y
        add_gradient(&model->second, model->active, model->probability, model->active_error);
        for (int i = 0; i < model->first.outputs; i++)
            if (model->active[i] <= 0)
                model->active_error[i] = 0;
        add_gradient(&model->first, row->pixels, model->active_error, NULL);

        if (++batch == BATCH || at + 1 == n) {
            step(&model->first, lr, batch);
            step(&model->second, lr, batch);
            batch = 0;
        }
    }
    return loss / n;
}

static Score test(Model *model, const int *order, int n)
{
    Score score = {0};
    int right = 0;
    for (int at = 0; at < n; at++) {
        const Row *row = &rows[order[at]];
        score.loss += predict(model, row) / n;
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            if (model->probability[c] > model->probability[best])
                best = c;
        score.confusion[row->label][best]++;
        right += best == row->label;
    }
    score.accuracy = (double)right / n;
    return score;
}

static void write_result(const Args *args, const Score *score, double train_loss, int train_rows, int test_rows)
{
    FILE *file = fopen(args->out, "w");
    if (file == NULL)
        fail(strerror(errno), args->out);
    // Parameters are checked numbers by now, so they need no escapes.
    fprintf(file, "{\n  \"parameters\": {\"lr\": \"%s\", \"hidden\": \"%s\", \"seed\": \"%s\", \"epochs\": \"%s\"},\n",
            args->lr, args->hidden, args->seed, args->epochs);
    fprintf(file, "  \"accuracy\": %.6f,\n  \"loss\": %.6f,\n  \"train_loss\": %.6f,\n", score->accuracy, score->loss,
            train_loss);
    fprintf(file, "  \"train_rows\": %d,\n  \"test_rows\": %d,\n", train_rows, test_rows);
    fprintf(file, "  \"confusion\": [\n");
    for (int truth = 0; truth < CLASSES; truth++) {
        fprintf(file, "    [");
        for (int c = 0; c < CLASSES; c++)
            fprintf(file, "%s%d", c ? ", " : "", score->confusion[truth][c]);
        fprintf(file, "]%s\n", truth + 1 < CLASSES ? "," : "");
    }
    fprintf(file, "  ]\n}\n");
    if (ferror(file) | fclose(file))
        fail("cannot be written", args->out);
}

int main(int argc, char **argv)
{
    Args args = parse_args(argc, argv);
    double lr = number("--lr", args.lr, 0.000001, 100);
    int hidden = whole("--hidden", args.hidden, 1, HIDDEN_MAX);
    int epochs = whole("--epochs", args.epochs, 1, EPOCHS_MAX);
    uint64_t random = (uint64_t)whole("--seed", args.seed, 0, 1000000000);

    int n = read_rows(args.data);
    int order[ROWS_MAX];
    for (int i = 0; i < n; i++)
        order[i] = i;
    uint64_t split = SPLIT_SEED;
    shuffle(order, n, &split);
    int test_rows = n / TEST_EVERY, train_rows = n - test_rows;
    int *test_order = order + train_rows;

    Model model = {.first = new_layer(PIXELS, hidden, &random), .second = new_layer(hidden, CLASSES, &random)};
    model.active = floats(hidden);
    model.active_error = floats(hidden);

    printf("%d rows to train with, %d to test; lr %s, %d hidden units, seed %s\n", train_rows, test_rows, args.lr,
           hidden, args.seed);
    fflush(stdout);

    Score score = {0};
    double train_loss = 0;
    for (int epoch = 1; epoch <= epochs; epoch++) {
        train_loss = train_epoch(&model, order, train_rows, lr, &random);
        score = test(&model, test_order, test_rows);
        printf("epoch %2d/%d  loss %.4f  test loss %.4f  accuracy %.4f\n", epoch, epochs, train_loss, score.loss,
               score.accuracy);
        fflush(stdout); // so that `souk logs -f` shows the line now
    }

    write_result(&args, &score, train_loss, train_rows, test_rows);
    printf("accuracy %.4f on %d images it never saw\n", score.accuracy, test_rows);
    return 0;
}
