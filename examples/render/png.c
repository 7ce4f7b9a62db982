// PNG: each line is filtered to small differences, then packed by deflate (RFC 1951) in zlib's wrapping (RFC 1950).
//
// The packer looks for repeats through a hash of three bytes with one earlier place for each hash, and writes blocks with
// Huffman codes made for their contents. Plain, but within a few percent of what image programs reach for photographs.

#include "png.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 32768,
    HASH_BITS = 15,
    MATCH_MIN = 3,
    MATCH_MAX = 258,
    BLOCK_SYMBOLS = 32768, // literals and matches of one block
    LITERALS = 286,
    DISTANCES = 30,
    LENGTH_CODES = 19,
    END_OF_BLOCK = 256,
    CODE_BITS_MAX = 15,
    LENGTH_CODE_BITS_MAX = 7
};

typedef struct {
    unsigned char *bytes;
    size_t size, room;
    uint32_t bits;
    int bit_count;
    int full; // out of memory
} Out;

typedef struct {
    uint16_t literal_or_length, distance; // distance 0: a literal
} Symbol;

typedef struct {
    unsigned char bits[LITERALS];
    uint16_t code[LITERALS]; // first bit lowest, as deflate wants it
} Codes;

static const uint16_t LENGTH_BASE[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                         31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const unsigned char LENGTH_EXTRA[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                               2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t DISTANCE_BASE[DISTANCES] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,
                                                  33,  49,  65,  97,  129, 193,  257,  385,  513,  769,
                                                  1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
static const unsigned char LENGTH_ORDER[LENGTH_CODES] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

// ---- output

static void put_byte(Out *out, unsigned value)
{
    if (out->size == out->room) {
        size_t room = out->room ? out->room * 2 : 65536;
        unsigned char *bytes = out->full ? NULL : realloc(out->bytes, room);
        if (bytes == NULL) {
            out->full = 1;
            return;
        }
        out->bytes = bytes;
        out->room = room;
    }
    out->bytes[out->size++] = (unsigned char)value;
}

static void put_bits(Out *out, unsigned value, int count)
{
    out->bits |= value << out->bit_count;
    out->bit_count += count;
    while (out->bit_count >= 8) {
        put_byte(out, out->bits & 255);
        out->bits >>= 8;
        out->bit_count -= 8;
    }
}

static void put_word(Out *out, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        put_byte(out, value >> shift & 255);
}

// ---- Huffman codes

// Fills the code lengths for the counts: joins the two rarest trees until one is left. Where that makes a code too
// long, the counts are flattened and it is done again.
static void make_lengths(const uint32_t *counts, int n, int bits_max, unsigned char *bits)
{
    uint32_t weight[2 * LITERALS];
    int parent[2 * LITERALS], alive[2 * LITERALS];
    for (int flatten = 0;; flatten++) {
        int used = 0, nodes = n, longest = 0;
        for (int i = 0; i < n; i++) {
            weight[i] = counts[i] ? (counts[i] >> flatten) + 1 : 0;
            alive[i] = counts[i] != 0;
            parent[i] = -1;
            used += alive[i];
        }
        for (int left = used; left > 1; left--) {
            int rare[2] = {-1, -1};
            for (int i = 0; i < nodes; i++) {
                if (!alive[i])
                    continue;
                if (rare[0] < 0 || weight[i] < weight[rare[0]]) {
                    rare[1] = rare[0];
                    rare[0] = i;
                } else if (rare[1] < 0 || weight[i] < weight[rare[1]]) {
                    rare[1] = i;
                }
            }
            weight[nodes] = weight[rare[0]] + weight[rare[1]];
            alive[nodes] = 1;
            parent[nodes] = -1;
            alive[rare[0]] = alive[rare[1]] = 0;
            parent[rare[0]] = parent[rare[1]] = nodes;
            nodes++;
        }
        for (int i = 0; i < n; i++) {
            int depth = 0;
            for (int at = i; parent[at] >= 0; at = parent[at])
                depth++;
            bits[i] = (unsigned char)(counts[i] && depth == 0 ? 1 : depth); // a lone symbol still needs a bit
            longest = depth > longest ? depth : longest;
        }
        if (longest <= bits_max)
            return;
    }
}

static void make_codes(const uint32_t *counts, int n, int bits_max, Codes *codes)
{
    make_lengths(counts, n, bits_max, codes->bits);
    unsigned next = 0;
    for (int length = 1; length <= bits_max; length++) {
        for (int i = 0; i < n; i++) {
            if (codes->bits[i] != length)
                continue;
            unsigned turned = 0;
            for (int b = 0; b < length; b++)
                turned |= (next >> b & 1) << (length - 1 - b);
            codes->code[i] = (uint16_t)turned;
            next++;
        }
        next <<= 1;
    }
}

static void put_code(Out *out, const Codes *codes, int symbol)
{
    put_bits(out, codes->code[symbol], codes->bits[symbol]);
}

// ---- blocks

static int length_code(int length)
{
    int code = 28;
    while (LENGTH_BASE[code] > length)
        code--;
    return code;
}

static int distance_code(int distance)
{
    int code = DISTANCES - 1;
    while (DISTANCE_BASE[code] > distance)
        code--;
    return code;
}

static int distance_extra(int code)
{
    return code < 2 ? 0 : code / 2 - 1;
}

static void write_block(Out *out, const Symbol *symbols, int count, int last)
{
    uint32_t literals[LITERALS] = {0}, distances[DISTANCES] = {0}, lengths[LENGTH_CODES] = {0};
    literals[END_OF_BLOCK] = 1;
    distances[0] = 1; // at least one distance code must exist
    for (int i = 0; i < count; i++) {
        if (symbols[i].distance == 0) {
            literals[symbols[i].literal_or_length]++;
        } else {
            literals[257 + length_code(symbols[i].literal_or_length)]++;
            distances[distance_code(symbols[i].distance)]++;
        }
    }
    static Codes literal_codes, distance_codes, length_codes;
    make_codes(literals, LITERALS, CODE_BITS_MAX, &literal_codes);
    make_codes(distances, DISTANCES, CODE_BITS_MAX, &distance_codes);

    // The codes' lengths are themselves written with a code; runs of zeros (18) are its only shortcut used here.
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            make_codes(lengths, LENGTH_CODES, LENGTH_CODE_BITS_MAX, &length_codes);
            put_bits(out, (unsigned)last, 1);
            put_bits(out, 2, 2);
            put_bits(out, LITERALS - 257, 5);
            put_bits(out, DISTANCES - 1, 5);
            put_bits(out, LENGTH_CODES - 4, 4);
            for (int i = 0; i < LENGTH_CODES; i++)
                put_bits(out, length_codes.bits[LENGTH_ORDER[i]], 3);
        }
        for (int i = 0; i < LITERALS + DISTANCES;) {
            int zeros = 0;
            while (i + zeros < LITERALS + DISTANCES && zeros < 138 &&
                   (i + zeros < LITERALS ? literal_codes.bits[i + zeros] : distance_codes.bits[i + zeros - LITERALS]) == 0)
                zeros++;
            int symbol = zeros >= 11 ? 18 : i < LITERALS ? literal_codes.bits[i] : distance_codes.bits[i - LITERALS];
            if (pass == 0) {
                lengths[symbol]++;
            } else {
                put_code(out, &length_codes, symbol);
                if (symbol == 18)
                    put_bits(out, (unsigned)(zeros - 11), 7);
            }
            i += symbol == 18 ? zeros : 1;
        }
    }

    for (int i = 0; i < count; i++) {
        int value = symbols[i].literal_or_length, distance = symbols[i].distance;
        if (distance == 0) {
            put_code(out, &literal_codes, value);
            continue;
        }
        int code = length_code(value);
        put_code(out, &literal_codes, 257 + code);
        put_bits(out, (unsigned)(value - LENGTH_BASE[code]), LENGTH_EXTRA[code]);
        code = distance_code(distance);
        put_code(out, &distance_codes, code);
        put_bits(out, (unsigned)(distance - DISTANCE_BASE[code]), distance_extra(code));
    }
    put_code(out, &literal_codes, END_OF_BLOCK);
}

static unsigned hash(const unsigned char *at)
{
    uint32_t three = at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
    return three * 0x9e3779b1u >> (32 - HASH_BITS);
}

static void deflate(Out *out, const unsigned char *data, size_t size)
{
    size_t *seen = calloc((size_t)1 << HASH_BITS, sizeof *seen); // place + 1 of the hash's last occurrence
    Symbol *symbols = malloc(BLOCK_SYMBOLS * sizeof *symbols);
    if (seen == NULL || symbols == NULL) {
        out->full = 1;
        free(seen);
        free(symbols);
        return;
    }
    int count = 0;
    for (size_t at = 0; at < size;) {
        size_t length = 0, distance = 0;
        if (size - at >= MATCH_MIN) {
            unsigned h = hash(data + at);
            if (seen[h] != 0 && at - (seen[h] - 1) <= WINDOW) {
                size_t from = seen[h] - 1, most = size - at < MATCH_MAX ? size - at : MATCH_MAX;
                while (length < most && data[from + length] == data[at + length])
                    length++;
                distance = at - from;
            }
            seen[h] = at + 1;
        }
        if (length > MATCH_MIN) { // three bytes save nothing over three literals here
            symbols[count++] = (Symbol){(uint16_t)length, (uint16_t)distance};
            for (size_t i = 1; i < length && size - at - i >= MATCH_MIN; i++)
                seen[hash(data + at + i)] = at + i + 1;
            at += length;
        } else {
            symbols[count++] = (Symbol){data[at++], 0};
        }
        if (count == BLOCK_SYMBOLS && at < size) {
            write_block(out, symbols, count, 0);
            count = 0;
        }
    }
    write_block(out, symbols, count, 1);
    if (out->bit_count > 0)
        put_bits(out, 0, 8 - out->bit_count);
    free(seen);
    free(symbols);
}

static uint32_t adler32(const unsigned char *data, size_t size)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < size; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

// ---- PNG

static int nearest(int left, int above, int corner)
{
    int guess = left + above - corner;
    int to_left = abs(guess - left), to_above = abs(guess - above), to_corner = abs(guess - corner);
    if (to_left <= to_above && to_left <= to_corner)
        return left;
    return to_above <= to_corner ? above : corner;
}

// Filters a line in each of PNG's five ways and keeps the one with the smallest sum of differences.
static void filter_line(const unsigned char *line, const unsigned char *previous, size_t size, unsigned char *best)
{
    unsigned char *tried = best + size + 1; // the caller's buffer holds two filtered lines
    long smallest = LONG_MAX;
    for (int kind = 0; kind < 5; kind++) {
        long sum = 0;
        tried[0] = (unsigned char)kind;
        for (size_t i = 0; i < size; i++) {
            int left = i >= 3 ? line[i - 3] : 0, above = previous ? previous[i] : 0;
            int corner = previous && i >= 3 ? previous[i - 3] : 0;
            int guess = kind == 0   ? 0
                        : kind == 1 ? left
                        : kind == 2 ? above
                        : kind == 3 ? (left + above) / 2
                                    : nearest(left, above, corner);
            tried[i + 1] = (unsigned char)(line[i] - guess);
            sum += abs((signed char)tried[i + 1]);
        }
        if (sum < smallest) {
            smallest = sum;
            memcpy(best, tried, size + 1);
        }
    }
}

static void put_chunk(FILE *file, const char *kind, const unsigned char *data, size_t size)
{
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t c = n;
            for (int k = 0; k < 8; k++)
                c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
            table[n] = c;
        }
    uint32_t crc = ~0u;
    for (size_t i = 0; i < 4 + size; i++)
        crc = table[(crc ^ (i < 4 ? (unsigned char)kind[i] : data[i - 4])) & 255] ^ crc >> 8;
    crc = ~crc;

    unsigned char head[8] = {(unsigned char)(size >> 24), (unsigned char)(size >> 16), (unsigned char)(size >> 8),
                             (unsigned char)size};
    memcpy(head + 4, kind, 4);
    unsigned char tail[4] = {(unsigned char)(crc >> 24), (unsigned char)(crc >> 16), (unsigned char)(crc >> 8),
                             (unsigned char)crc};
    fwrite(head, 1, sizeof head, file);
    fwrite(data, 1, size, file);
    fwrite(tail, 1, sizeof tail, file);
}

const char *png_write(FILE *file, int width, int height, const unsigned char *rgb)
{
    size_t line = (size_t)width * 3;
    unsigned char *filtered = malloc((size_t)height * (line + 1) + line + 1); // and room to try the last line
    if (filtered == NULL)
        return "out of memory";
    for (int y = 0; y < height; y++)
        filter_line(rgb + (size_t)y * line, y ? rgb + (size_t)(y - 1) * line : NULL, line,
                    filtered + (size_t)y * (line + 1));

    size_t size = (size_t)height * (line + 1);
    Out out = {0};
    put_byte(&out, 0x78);
    put_byte(&out, 0x9c);
    deflate(&out, filtered, size);
    put_word(&out, adler32(filtered, size));
    free(filtered);
    if (out.full) {
        free(out.bytes);
        return "out of memory";
    }

    static const unsigned char signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    Out header = {0};
    put_word(&header, (uint32_t)width);
    put_word(&header, (uint32_t)height);
    static const unsigned char kind[5] = {8, 2, 0, 0, 0}; // 8 bits, RGB, deflate, adaptive filters, not interlaced
    for (int i = 0; i < 5; i++)
        put_byte(&header, kind[i]);
    const char *result = header.full ? "out of memory" : NULL;
    if (result == NULL) {
        fwrite(signature, 1, sizeof signature, file);
        put_chunk(file, "IHDR", header.bytes, header.size);
        put_chunk(file, "IDAT", out.bytes, out.size);
        put_chunk(file, "IEND", (const unsigned char *)"", 0);
        result = ferror(file) ? "the file cannot be written" : NULL;
    }
    free(header.bytes);
    free(out.bytes);
    return result;
}
