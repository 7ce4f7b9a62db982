// A decoder of baseline JPEG pictures.

#ifndef JPEG_H
#define JPEG_H

#include <stddef.h>

typedef struct {
    int width, height;
    unsigned char *rgb; // height x width x 3 bytes, from the top left; free() it
} Picture;

// Decodes a baseline (sequential, 8 bit, Huffman) JPEG of one or three components. Returns NULL and fills the picture,
// or returns what is wrong with the bytes.
const char *jpeg_decode(const unsigned char *bytes, size_t size, Picture *picture);

#endif
