// Paints one tile of a photograph, at twice its size, as if with a brush.
//
//   paint --photo /in/photo.jpg --grid 4x3 --x 2 --y 1 [--scale 2] [--brush 7] [--out /out/tile.ppm]
//
// The filter is the anisotropic Kuwahara filter (J. E. Kyprianidis, H. Kang and J. Doellner, "Image and Video
// Abstraction by Anisotropic Kuwahara Filtering", 2009, with the polynomial weights of Kyprianidis, Semmo, Kang and
// Doellner, 2010). For each pixel it lays an ellipse along the local edge, cuts it into eight sectors, and mixes the
// sectors' mean colours so that the calmest sector counts most: flat areas become strokes, edges stay sharp.
//
// A tile needs pixels from beyond its border. Every task reads the whole photograph and works on its tile plus that
// margin, so that tiles fit without a seam: any grid gives the same picture.

#include "jpeg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRID_MAX = 64, SCALE_MAX = 4, BRUSH_MAX = 16, SECTORS = 8, SMOOTH = 6, FILE_MAX = 32 * 1024 * 1024 };

static const float SMOOTH_SIGMA = 3; // of the edge directions, in pixels of the painting
static const float SHARPNESS = 8;    // how much the calmest sector is preferred
static const float CONTRAST = 80;    // deviations of colour are multiplied by it before they are compared

typedef struct {
    float r, g, b;
} Colour;

// What is known of the edge through a pixel: the products of the colour's derivatives.
typedef struct {
    float xx, xy, yy;
} Tensor;

typedef struct {
    int left, top, width, height;
} Rect;

// A part of the enlarged photograph; positions are those of the whole painting, and clamped to the part.
typedef struct {
    Rect rect;
    Colour *pixels;
} Part;

static void fail(const char *what, const char *value)
{
    fprintf(stderr, "paint: %s: %s\n", what, value);
    exit(2);
}

static int whole(const char *name, const char *text, int low, int high)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < low || value > high) {
        fprintf(stderr, "paint: %s must be %d to %d, not \"%s\"\n", name, low, high, text);
        exit(2);
    }
    return (int)value;
}

static void *memory(size_t count, size_t size)
{
    void *p = calloc(count, size);
    if (p == NULL)
        fail("out of memory", "use a smaller photograph or scale");
    return p;
}

static Picture read_photo(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail(strerror(errno), path);
    size_t room = 64 * 1024, size = 0;
    unsigned char *bytes = memory(room, 1);
    for (size_t n; (n = fread(bytes + size, 1, room - size, file)) > 0;) {
        size += n;
        if (size == room) {
            if (room >= FILE_MAX)
                fail("larger than 32 MiB", path);
            room *= 2;
            bytes = realloc(bytes, room);
            if (bytes == NULL)
                fail("out of memory", path);
        }
    }
    fclose(file);
    Picture photo;
    const char *wrong = jpeg_decode(bytes, size, &photo);
    if (wrong != NULL)
        fail(wrong, path);
    free(bytes);
    return photo;
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

// ---- enlarging (Catmull-Rom)

static void cubic(float t, float weight[4])
{
    float t2 = t * t, t3 = t2 * t;
    weight[0] = 0.5f * (-t3 + 2 * t2 - t);
    weight[1] = 0.5f * (3 * t3 - 5 * t2 + 2);
    weight[2] = 0.5f * (-3 * t3 + 4 * t2 + t);
    weight[3] = 0.5f * (t3 - t2);
}

static Colour sample(const Picture *photo, float x, float y)
{
    int left = (int)floorf(x), top = (int)floorf(y);
    float across[4], down[4];
    cubic(x - (float)left, across);
    cubic(y - (float)top, down);
    Colour sum = {0, 0, 0};
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            int px = clamp(left + i - 1, 0, photo->width - 1), py = clamp(top + j - 1, 0, photo->height - 1);
            const unsigned char *rgb = photo->rgb + ((size_t)py * (size_t)photo->width + (size_t)px) * 3;
            float weight = across[i] * down[j] / 255;
            sum.r += weight * rgb[0];
            sum.g += weight * rgb[1];
            sum.b += weight * rgb[2];
        }
    return sum;
}

static Part enlarge(const Picture *photo, Rect rect, int scale)
{
    Part part = {rect, memory((size_t)rect.width * (size_t)rect.height, sizeof *part.pixels)};
    for (int y = 0; y < rect.height; y++)
        for (int x = 0; x < rect.width; x++)
            part.pixels[y * rect.width + x] = sample(photo, ((float)(rect.left + x) + 0.5f) / (float)scale - 0.5f,
                                                     ((float)(rect.top + y) + 0.5f) / (float)scale - 0.5f);
    return part;
}

static const Colour *pixel(const Part *part, int x, int y)
{
    x = clamp(x - part->rect.left, 0, part->rect.width - 1);
    y = clamp(y - part->rect.top, 0, part->rect.height - 1);
    return &part->pixels[y * part->rect.width + x];
}

// ---- edge directions

static Tensor tensor_at(const Part *part, int x, int y)
{
    float dx[3] = {0}, dy[3] = {0};
    static const float sobel[3] = {0.25f, 0.5f, 0.25f};
    for (int i = -1; i <= 1; i++) {
        const Colour *left = pixel(part, x - 1, y + i), *right = pixel(part, x + 1, y + i);
        const Colour *above = pixel(part, x + i, y - 1), *below = pixel(part, x + i, y + 1);
        float w = sobel[i + 1];
        dx[0] += w * (right->r - left->r), dx[1] += w * (right->g - left->g), dx[2] += w * (right->b - left->b);
        dy[0] += w * (below->r - above->r), dy[1] += w * (below->g - above->g), dy[2] += w * (below->b - above->b);
    }
    Tensor t = {dx[0] * dx[0] + dx[1] * dx[1] + dx[2] * dx[2], dx[0] * dy[0] + dx[1] * dy[1] + dx[2] * dy[2],
                dy[0] * dy[0] + dy[1] * dy[1] + dy[2] * dy[2]};
    return t;
}

// The tensors of a tile, smoothed by a Gaussian: across first, then down.
static Tensor *directions(const Part *part, Rect tile)
{
    float weight[2 * SMOOTH + 1], sum = 0;
    for (int i = -SMOOTH; i <= SMOOTH; i++)
        sum += weight[i + SMOOTH] = expf(-0.5f * (float)(i * i) / (SMOOTH_SIGMA * SMOOTH_SIGMA));

    int wide = tile.width + 2 * SMOOTH, high = tile.height + 2 * SMOOTH;
    Tensor *raw = memory((size_t)wide * (size_t)high, sizeof *raw);
    Tensor *rows = memory((size_t)tile.width * (size_t)high, sizeof *rows);
    Tensor *smooth = memory((size_t)tile.width * (size_t)tile.height, sizeof *smooth);
    // Beyond the painting's edge the nearest pixel's direction holds, wherever the tile ends.
    const Rect *r = &part->rect;
    for (int y = 0; y < high; y++)
        for (int x = 0; x < wide; x++)
            raw[y * wide + x] = tensor_at(part, clamp(tile.left + x - SMOOTH, r->left, r->left + r->width - 1),
                                          clamp(tile.top + y - SMOOTH, r->top, r->top + r->height - 1));
    for (int y = 0; y < high; y++)
        for (int x = 0; x < tile.width; x++)
            for (int i = 0; i <= 2 * SMOOTH; i++) {
                const Tensor *from = &raw[y * wide + x + i];
                Tensor *to = &rows[y * tile.width + x];
                float w = weight[i] / sum;
                to->xx += w * from->xx, to->xy += w * from->xy, to->yy += w * from->yy;
            }
    for (int y = 0; y < tile.height; y++)
        for (int x = 0; x < tile.width; x++)
            for (int i = 0; i <= 2 * SMOOTH; i++) {
                const Tensor *from = &rows[(y + i) * tile.width + x];
                Tensor *to = &smooth[y * tile.width + x];
                float w = weight[i] / sum;
                to->xx += w * from->xx, to->xy += w * from->xy, to->yy += w * from->yy;
            }
    free(raw);
    free(rows);
    return smooth;
}

// ---- brush

// How much each sector owns of the point (x, y) of the unit disc: a parabola along the sector's axis, cut at zero. The
// sum is 1.
static void sector_weights(float x, float y, float weight[SECTORS])
{
    const float zeta = 1.0f / 3, eta = 0.84f; // neighbours overlap a little, the disc's middle belongs to all
    const float half = 0.70710678f;
    float sum = 0, dx = half * (x - y), dy = half * (x + y);
    const float along[4] = {y, dy, x, dx}, aside[4] = {x, dx, y, dy};
    for (int k = 0; k < 4; k++) {
        float base = zeta - eta * aside[k] * aside[k];
        float front = base + along[k], back = base - along[k];
        front = front > 0 ? front * front : 0;
        back = back > 0 ? back * back : 0;
        weight[k] = front;
        weight[k + 4] = back;
        sum += front + back;
    }
    for (int k = 0; k < SECTORS; k++)
        weight[k] /= sum;
}

static Colour paint_pixel(const Part *part, int x, int y, const Tensor *t, float brush)
{
    // The larger eigenvalue's direction crosses the edge; the ellipse lies along the other one.
    float root = sqrtf((t->xx - t->yy) * (t->xx - t->yy) + 4 * t->xy * t->xy);
    float trace = t->xx + t->yy;
    float anisotropy = trace > 1e-9f ? root / trace : 0; // 0 flat or noisy, 1 a clean edge
    float vx = 0.5f * (t->xx - t->yy - root), vy = t->xy;
    float length = sqrtf(vx * vx + vy * vy);
    float c = 0, s = 1;
    if (length > 1e-9f)
        c = vx / length, s = vy / length;
    else if (t->xx < t->yy)
        c = 1, s = 0;

    float major = brush * (1 + anisotropy), minor = brush / (1 + anisotropy);
    int reach_x = (int)sqrtf(major * major * c * c + minor * minor * s * s);
    int reach_y = (int)sqrtf(major * major * s * s + minor * minor * c * c);

    float sum[SECTORS] = {0}, r[SECTORS] = {0}, g[SECTORS] = {0}, b[SECTORS] = {0}, square[SECTORS] = {0};
    for (int j = -reach_y; j <= reach_y; j++)
        for (int i = -reach_x; i <= reach_x; i++) {
            float u = (c * (float)i + s * (float)j) / major, v = (c * (float)j - s * (float)i) / minor;
            float distance = u * u + v * v;
            if (distance > 1)
                continue;
            float weight[SECTORS];
            sector_weights(u, v, weight);
            // a bell over the disc, without exp: (1 - d)^2, kept above zero at the rim
            float bell = (1.02f - distance) * (1.02f - distance);
            const Colour *p = pixel(part, x + i, y + j);
            float energy = p->r * p->r + p->g * p->g + p->b * p->b;
            for (int k = 0; k < SECTORS; k++) {
                float w = weight[k] * bell;
                sum[k] += w, r[k] += w * p->r, g[k] += w * p->g, b[k] += w * p->b, square[k] += w * energy;
            }
        }

    Colour out = {0, 0, 0};
    float total = 0;
    for (int k = 0; k < SECTORS; k++) {
        if (!(sum[k] > 0))
            continue;
        float mr = r[k] / sum[k], mg = g[k] / sum[k], mb = b[k] / sum[k];
        float variance = fmaxf(square[k] / sum[k] - mr * mr - mg * mg - mb * mb, 0);
        float calm = 1 / (1 + powf(CONTRAST * sqrtf(variance), SHARPNESS));
        total += calm, out.r += calm * mr, out.g += calm * mg, out.b += calm * mb;
    }
    out.r /= total, out.g /= total, out.b /= total;
    return out;
}

// ---- tile

static unsigned char to_byte(float value)
{
    return value <= 0 ? 0 : value >= 1 ? 255 : (unsigned char)(value * 255 + 0.5f);
}

// A portable pixmap, with a comment that says where the tile belongs.
static void write_tile(const char *path, Rect tile, int width, int height, const unsigned char *rgb)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        fail(strerror(errno), path);
    fprintf(file, "P6\n# tile at %d %d of %d %d\n%d %d\n255\n", tile.left, tile.top, width, height, tile.width,
            tile.height);
    fwrite(rgb, 3, (size_t)tile.width * (size_t)tile.height, file);
    if (ferror(file) | fclose(file))
        fail("cannot be written", path);
}

int main(int argc, char **argv)
{
    const char *photo_path = NULL, *grid = NULL, *x_text = NULL, *y_text = NULL, *scale_text = "2", *brush_text = "7",
               *out = "/out/tile.ppm";
    struct {
        const char *name, **value;
    } known[] = {{"--photo", &photo_path}, {"--grid", &grid},        {"--x", &x_text}, {"--y", &y_text},
                 {"--scale", &scale_text}, {"--brush", &brush_text}, {"--out", &out}};
    const int kinds = sizeof known / sizeof known[0];
    for (int i = 1; i < argc; i += 2) {
        int k = 0;
        while (k < kinds && strcmp(argv[i], known[k].name) != 0)
            k++;
        if (k == kinds || i + 1 == argc)
            fail("unknown or without a value, use --photo --grid --x --y --scale --brush --out", argv[i]);
        *known[k].value = argv[i + 1];
    }
    for (int k = 0; k < kinds; k++)
        if (*known[k].value == NULL)
            fail("this argument is missing", known[k].name);

    int columns, rows, used = 0;
    if (sscanf(grid, "%dx%d%n", &columns, &rows, &used) != 2 || grid[used] != '\0' || columns < 1 ||
        columns > GRID_MAX || rows < 1 || rows > GRID_MAX)
        fail("must be COLUMNSxROWS, each 1 to 64", grid);
    int column = whole("--x", x_text, 0, columns - 1), row = whole("--y", y_text, 0, rows - 1);
    int scale = whole("--scale", scale_text, 1, SCALE_MAX), brush = whole("--brush", brush_text, 2, BRUSH_MAX);

    Picture photo = read_photo(photo_path);
    int width = photo.width * scale, height = photo.height * scale;
    Rect tile = {width * column / columns, height * row / rows, 0, 0};
    tile.width = width * (column + 1) / columns - tile.left;
    tile.height = height * (row + 1) / rows - tile.top;
    if (tile.width < 1 || tile.height < 1)
        fail("has more tiles than the painting has pixels", grid);
    printf("tile %d,%d: %d x %d pixels at %d,%d of a %d x %d painting\n", column, row, tile.width, tile.height,
           tile.left, tile.top, width, height);
    fflush(stdout);

    int margin = 2 * brush > SMOOTH + 1 ? 2 * brush : SMOOTH + 1; // the longest ellipse, or the smoothing
    int left = clamp(tile.left - margin, 0, width), right = clamp(tile.left + tile.width + margin, 0, width);
    int top = clamp(tile.top - margin, 0, height), bottom = clamp(tile.top + tile.height + margin, 0, height);
    Part part = enlarge(&photo, (Rect){left, top, right - left, bottom - top}, scale);
    Tensor *tensors = directions(&part, tile);

    unsigned char *rgb = memory((size_t)tile.width * (size_t)tile.height, 3), *to = rgb;
    for (int y = 0, quarter = 1; y < tile.height; y++) {
        for (int x = 0; x < tile.width; x++, to += 3) {
            Colour c = paint_pixel(&part, tile.left + x, tile.top + y, &tensors[y * tile.width + x], (float)brush);
            to[0] = to_byte(c.r), to[1] = to_byte(c.g), to[2] = to_byte(c.b);
        }
        if ((y + 1) * 4 >= tile.height * quarter) {
            printf("painted %d of %d lines\n", y + 1, tile.height);
            fflush(stdout);
            quarter = (y + 1) * 4 / tile.height + 1;
        }
    }
    write_tile(out, tile, width, height, rgb);
    return 0;
}
