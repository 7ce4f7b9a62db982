// Joins the tiles of a painting into one PNG.
//
//   join --in /in/tiles --out /out/picture.png
//
// Reads every .ppm file below the folder --in. Each says in a comment where it belongs ("tile at X Y of WIDTH HEIGHT").
// A tile that is missing, lies twice or belongs to another painting is an error: no picture is written then.

#include "png.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 512, DEPTH_MAX = 8, SIDE_MAX = 16384 };

typedef struct {
    int width, height, tiles;
    unsigned char *rgb;
    unsigned char *covered; // one byte a pixel
} Painting;

static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("join: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

static void begin(Painting *painting, int width, int height)
{
    painting->width = width;
    painting->height = height;
    painting->rgb = calloc((size_t)width * (size_t)height, 3);
    painting->covered = calloc((size_t)width * (size_t)height, 1);
    if (painting->rgb == NULL || painting->covered == NULL)
        fail("out of memory for %d x %d pixels", width, height);
}

static void add_tile(Painting *painting, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail("%s: %s", path, strerror(errno));
    int left, top, width, height, tile_width, tile_height, top_value;
    if (fscanf(file, "P6 # tile at %d %d of %d %d %d %d %d", &left, &top, &width, &height, &tile_width, &tile_height,
               &top_value) != 7 ||
        top_value != 255 || fgetc(file) != '\n')
        fail("%s is no tile: the head is not as paint writes it", path);
    if (width < 1 || width > SIDE_MAX || height < 1 || height > SIDE_MAX || left < 0 || top < 0 || tile_width < 1 ||
        tile_height < 1 || tile_width > width - left || tile_height > height - top)
        fail("%s: the tile lies outside of its painting", path);

    if (painting->rgb == NULL)
        begin(painting, width, height);
    if (width != painting->width || height != painting->height)
        fail("%s belongs to a painting of %d x %d pixels, the others to one of %d x %d; empty the folder of tiles", path,
             width, height, painting->width, painting->height);

    for (int y = 0; y < tile_height; y++) {
        size_t at = (size_t)(top + y) * (size_t)width + (size_t)left;
        for (int x = 0; x < tile_width; x++)
            if (painting->covered[at + (size_t)x]++)
                fail("%s: this place is taken by another tile; empty the folder of tiles", path);
        if (fread(painting->rgb + at * 3, 3, (size_t)tile_width, file) != (size_t)tile_width)
            fail("%s ends too early", path);
    }
    if (fgetc(file) != EOF)
        fail("%s is longer than its tile", path);
    fclose(file);
    painting->tiles++;
}

static void read_folder(Painting *painting, const char *folder, int depth)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        fail("%s: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        char path[PATH_BYTES];
        struct stat about;
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            fail("%s: the path is too long", folder);
        if (stat(path, &about) != 0)
            fail("%s: %s", path, strerror(errno));
        size_t length = strlen(entry->d_name);
        if (S_ISDIR(about.st_mode)) {
            if (depth == DEPTH_MAX)
                fail("%s: folders are nested too deeply", path);
            read_folder(painting, path, depth + 1);
        } else if (length > 4 && strcmp(entry->d_name + length - 4, ".ppm") == 0) {
            add_tile(painting, path);
        }
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    const char *in = "/in/tiles", *out = "/out/picture.png";
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc || (strcmp(argv[i], "--in") != 0 && strcmp(argv[i], "--out") != 0))
            fail("\"%s\" is unknown or has no value, use --in --out", argv[i]);
        *(strcmp(argv[i], "--in") == 0 ? &in : &out) = argv[i + 1];
    }

    Painting painting = {0};
    read_folder(&painting, in, 1);
    if (painting.tiles == 0)
        fail("no tiles below %s, paint them first", in);
    size_t pixels = (size_t)painting.width * (size_t)painting.height, missing = 0, first = 0;
    for (size_t i = pixels; i-- > 0;)
        if (!painting.covered[i]) {
            missing++;
            first = i;
        }
    if (missing > 0)
        fail("%zu of %zu pixels have no tile, the first at %zu,%zu; paint the missing tiles", missing, pixels,
             first % (size_t)painting.width, first / (size_t)painting.width);

    FILE *file = fopen(out, "wb");
    if (file == NULL)
        fail("%s: %s", out, strerror(errno));
    const char *wrong = png_write(file, painting.width, painting.height, painting.rgb);
    if (fclose(file) != 0 && wrong == NULL)
        wrong = strerror(errno);
    if (wrong != NULL)
        fail("%s: %s", out, wrong);
    printf("joined %d tiles into %s, %d x %d pixels\n", painting.tiles, out, painting.width, painting.height);
    return 0;
}
