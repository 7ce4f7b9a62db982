// Baseline JPEG (ITU-T T.81): markers, Huffman codes, dequantisation, inverse cosine transform, YCbCr to RGB.
//
// A picture is cut into blocks of 8 x 8 samples for each component; a block is stored as 64 cosine coefficients,
// quantised and written in zigzag order. Blocks come in units ("MCU") of h x v blocks for each component.

#include "jpeg.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MAX = 8192, COMPONENTS = 3, TABLES = 4, BLOCK = 64, CODE_BITS = 16 };

typedef struct {
    int present;
    int first[CODE_BITS + 2];  // first code of each length
    int count[CODE_BITS + 1];  // number of codes of each length
    int start[CODE_BITS + 1];  // where the symbols of a length begin
    unsigned char symbol[256];
} Codes;

typedef struct {
    int id, h, v, quant, dc, ac;
    int previous;          // DC values are stored as differences
    int width, height;     // of the plane, in whole MCUs
    unsigned char *plane;
} Component;

typedef struct {
    const unsigned char *at, *end;
    const char *wrong;
    uint32_t bits;
    int bit_count;
    int width, height, count, restart, h_max, v_max, have_scan;
    Component component[COMPONENTS];
    int quant[TABLES][BLOCK], have_quant[TABLES];
    Codes dc[TABLES], ac[TABLES];
    float cosine[8][8]; // [sample][frequency], with the transform's factors
} Decoder;

static const unsigned char ZIGZAG[BLOCK] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// A fault is remembered and the reader runs dry: every loop below ends then.
static void wrong(Decoder *d, const char *what)
{
    if (d->wrong == NULL)
        d->wrong = what;
    d->at = d->end;
}

static int byte(Decoder *d)
{
    if (d->at >= d->end) {
        wrong(d, "the file ends too early");
        return 0;
    }
    return *d->at++;
}

static int word(Decoder *d)
{
    int high = byte(d);
    return high << 8 | byte(d);
}

// ---- bits and codes

static int next_bit(Decoder *d)
{
    if (d->bit_count == 0) {
        int value = byte(d);
        if (value == 0xff) {
            int stuffed = byte(d); // 0xff in the data is followed by 0; anything else is a marker
            if (stuffed != 0)
                wrong(d, "a marker stands within the picture's data");
        }
        d->bits = (uint32_t)value;
        d->bit_count = 8;
    }
    return d->bits >> --d->bit_count & 1;
}

static int next_symbol(Decoder *d, const Codes *codes)
{
    int code = 0;
    for (int length = 1; length <= CODE_BITS; length++) {
        code = code << 1 | next_bit(d);
        int at = code - codes->first[length];
        if (at >= 0 && at < codes->count[length])
            return codes->symbol[codes->start[length] + at];
    }
    wrong(d, "a code is unknown");
    return 0;
}

// A value of so many bits; the lower half of them stands for negative values.
static int next_value(Decoder *d, int size)
{
    int value = 0;
    for (int i = 0; i < size; i++)
        value = value << 1 | next_bit(d);
    return size > 0 && value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
}

// ---- blocks

static void inverse_transform(const Decoder *d, const float *coefficient, unsigned char *out, int stride)
{
    float rows[BLOCK];
    for (int v = 0; v < 8; v++)
        for (int x = 0; x < 8; x++) {
            float sum = 0;
            for (int u = 0; u < 8; u++)
                sum += d->cosine[x][u] * coefficient[v * 8 + u];
            rows[v * 8 + x] = sum;
        }
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) {
            float sum = 128.5f; // samples are stored around 0; the half rounds
            for (int v = 0; v < 8; v++)
                sum += d->cosine[y][v] * rows[v * 8 + x];
            out[y * stride + x] = sum < 0 ? 0 : sum > 255 ? 255 : (unsigned char)sum;
        }
}

static void decode_block(Decoder *d, Component *c, unsigned char *out)
{
    float coefficient[BLOCK] = {0};
    const int *quant = d->quant[c->quant];
    int size = next_symbol(d, &d->dc[c->dc]);
    if (size > 11)
        wrong(d, "a brightness step is too large");
    else
        c->previous += next_value(d, size);
    if (c->previous > 32767 || c->previous < -32768)
        wrong(d, "a brightness is out of range");
    coefficient[0] = (float)c->previous * (float)quant[0];

    for (int k = 1; k < BLOCK && d->wrong == NULL; k++) {
        int symbol = next_symbol(d, &d->ac[c->ac]), zeros = symbol >> 4;
        size = symbol & 15;
        if (size == 0 && zeros != 15)
            break; // the rest of the block is zero
        k += zeros;
        if (k >= BLOCK) {
            wrong(d, "a block has more than 64 coefficients");
            break;
        }
        coefficient[ZIGZAG[k]] = (float)next_value(d, size) * (float)quant[k];
    }
    inverse_transform(d, coefficient, out, c->width);
}

static void restart(Decoder *d, int expected)
{
    d->bit_count = 0;
    if (byte(d) != 0xff || byte(d) != 0xd0 + expected)
        wrong(d, "a restart marker is missing");
    for (int i = 0; i < d->count; i++)
        d->component[i].previous = 0;
}

static void decode_scan(Decoder *d)
{
    int across = (d->width + 8 * d->h_max - 1) / (8 * d->h_max);
    int down = (d->height + 8 * d->v_max - 1) / (8 * d->v_max);
    d->bit_count = 0;
    for (int unit = 0; unit < across * down && d->wrong == NULL; unit++) {
        if (d->restart > 0 && unit > 0 && unit % d->restart == 0)
            restart(d, (unit / d->restart - 1) % 8);
        for (int i = 0; i < d->count; i++) {
            Component *c = &d->component[i];
            for (int y = 0; y < c->v; y++)
                for (int x = 0; x < c->h; x++) {
                    int left = (unit % across * c->h + x) * 8, top = (unit / across * c->v + y) * 8;
                    decode_block(d, c, c->plane + (size_t)top * (size_t)c->width + left);
                }
        }
    }
    d->have_scan = d->wrong == NULL;
}

// ---- segments: each begins with its marker and length

static void read_quantisation(Decoder *d, int length)
{
    while (length > 0 && d->wrong == NULL) {
        int head = byte(d), wide = head >> 4, id = head & 15;
        if (wide > 1 || id >= TABLES) {
            wrong(d, "a quantisation table is malformed");
            return;
        }
        for (int i = 0; i < BLOCK; i++)
            d->quant[id][i] = wide ? word(d) : byte(d);
        d->have_quant[id] = 1;
        length -= 1 + BLOCK * (1 + wide);
    }
}

static void read_codes(Decoder *d, int length)
{
    while (length > 0 && d->wrong == NULL) {
        int head = byte(d), id = head & 15;
        if (head >> 4 > 1 || id >= TABLES) {
            wrong(d, "a code table is malformed");
            return;
        }
        Codes *codes = head >> 4 ? &d->ac[id] : &d->dc[id];
        int total = 0, code = 0;
        for (int n = 1; n <= CODE_BITS; n++) {
            codes->count[n] = byte(d);
            codes->start[n] = total;
            codes->first[n] = code;
            total += codes->count[n];
            code = (code + codes->count[n]) << 1;
        }
        if (total > 256) {
            wrong(d, "a code table has more than 256 codes");
            return;
        }
        for (int i = 0; i < total; i++)
            codes->symbol[i] = (unsigned char)byte(d);
        codes->present = 1;
        length -= 1 + CODE_BITS + total;
    }
}

static void read_frame(Decoder *d)
{
    if (d->count > 0 || byte(d) != 8) {
        wrong(d, "only pictures of one frame with 8 bits a sample are read");
        return;
    }
    d->height = word(d);
    d->width = word(d);
    int count = byte(d);
    if (d->width < 1 || d->width > SIDE_MAX || d->height < 1 || d->height > SIDE_MAX || (count != 1 && count != 3)) {
        wrong(d, "only grey and colour pictures of up to 8192 x 8192 are read");
        return;
    }
    d->h_max = d->v_max = 1;
    for (int i = 0; i < count; i++) {
        Component *c = &d->component[i];
        c->id = byte(d);
        int factors = byte(d);
        c->h = factors >> 4;
        c->v = factors & 15;
        c->quant = byte(d);
        if (c->h < 1 || c->h > 2 || c->v < 1 || c->v > 2 || c->quant >= TABLES) {
            wrong(d, "sampling factors other than 1 and 2 are not read");
            return;
        }
        if (count == 1)
            c->h = c->v = 1; // a single component is stored block by block, whatever its factors say
        d->h_max = c->h > d->h_max ? c->h : d->h_max;
        d->v_max = c->v > d->v_max ? c->v : d->v_max;
    }
    for (int i = 0; i < count; i++) {
        Component *c = &d->component[i];
        c->width = (d->width + 8 * d->h_max - 1) / (8 * d->h_max) * 8 * c->h;
        c->height = (d->height + 8 * d->v_max - 1) / (8 * d->v_max) * 8 * c->v;
        c->plane = calloc((size_t)c->width, (size_t)c->height);
        if (c->plane == NULL)
            wrong(d, "out of memory");
    }
    d->count = count;
}

static void read_scan(Decoder *d)
{
    if (d->count == 0 || byte(d) != d->count) {
        wrong(d, "only scans of all components at once are read");
        return;
    }
    for (int i = 0; i < d->count; i++) {
        Component *c = &d->component[i];
        int id = byte(d), tables = byte(d);
        c->dc = tables >> 4;
        c->ac = tables & 15;
        if (id != c->id || c->dc >= TABLES || c->ac >= TABLES || !d->dc[c->dc].present || !d->ac[c->ac].present ||
            !d->have_quant[c->quant]) {
            wrong(d, "a component or one of its tables is missing");
            return;
        }
    }
    d->at += d->end - d->at < 3 ? d->end - d->at : 3; // spectral selection, fixed in baseline pictures
    decode_scan(d);
}

static void read_segments(Decoder *d)
{
    if (byte(d) != 0xff || byte(d) != 0xd8) {
        wrong(d, "this is no JPEG file");
        return;
    }
    while (d->wrong == NULL && !d->have_scan) {
        if (byte(d) != 0xff) {
            wrong(d, "a marker is missing");
            return;
        }
        int marker = byte(d);
        while (marker == 0xff)
            marker = byte(d);
        int length = word(d) - 2;
        if (length < 0 || length > d->end - d->at) {
            wrong(d, "a segment is longer than the file");
            return;
        }
        const unsigned char *next = d->at + length;
        if (marker == 0xdb)
            read_quantisation(d, length);
        else if (marker == 0xc4)
            read_codes(d, length);
        else if (marker == 0xc0 || marker == 0xc1)
            read_frame(d);
        else if (marker == 0xdd)
            d->restart = word(d);
        else if (marker == 0xda)
            read_scan(d);
        else if (marker >= 0xc2 && marker <= 0xcf)
            wrong(d, "progressive, lossless and arithmetic JPEG are not read, save it as baseline");
        if (d->wrong == NULL && !d->have_scan)
            d->at = next;
    }
}

// ---- colours

static unsigned char to_byte(float value)
{
    return value < 0 ? 0 : value > 254.5f ? 255 : (unsigned char)(value + 0.5f);
}

static void to_rgb(const Decoder *d, unsigned char *rgb)
{
    for (int y = 0; y < d->height; y++)
        for (int x = 0; x < d->width; x++, rgb += 3) {
            float sample[COMPONENTS] = {0, 128, 128};
            for (int i = 0; i < d->count; i++) {
                const Component *c = &d->component[i];
                sample[i] = c->plane[(size_t)(y * c->v / d->v_max) * (size_t)c->width + x * c->h / d->h_max];
            }
            float luma = sample[0], blue = sample[1] - 128, red = sample[2] - 128;
            rgb[0] = to_byte(luma + 1.402f * red);
            rgb[1] = to_byte(luma - 0.344136f * blue - 0.714136f * red);
            rgb[2] = to_byte(luma + 1.772f * blue);
        }
}

const char *jpeg_decode(const unsigned char *bytes, size_t size, Picture *picture)
{
    Decoder *d = calloc(1, sizeof *d);
    if (d == NULL)
        return "out of memory";
    d->at = bytes;
    d->end = bytes + size;
    for (int x = 0; x < 8; x++)
        for (int u = 0; u < 8; u++)
            d->cosine[x][u] = (float)((u == 0 ? sqrt(0.125) : 0.5) * cos((2 * x + 1) * u * acos(-1.0) / 16));

    read_segments(d);
    if (d->wrong == NULL) {
        picture->width = d->width;
        picture->height = d->height;
        picture->rgb = malloc((size_t)d->width * (size_t)d->height * 3);
        if (picture->rgb == NULL)
            wrong(d, "out of memory");
        else
            to_rgb(d, picture->rgb);
    }
    const char *result = d->wrong;
    for (int i = 0; i < COMPONENTS; i++)
        free(d->component[i].plane);
    free(d);
    return result;
}
