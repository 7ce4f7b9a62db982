// The smallest souk job: greet on stdout, leave the same line in /out/hello.txt.
//
// An ordinary program would say printf and fopen, as ../sweep does. This one also measures how fast souk starts a
// task, so it calls the host's WASI functions itself: the module stays at five kilobytes and compiles in a few
// milliseconds.

#include <stddef.h>
#include <wasi/api.h>

enum { ARGS_MAX = 64, ENV_MAX = 128, TEXT_MAX = 8192, FIRST_PREOPENED_FD = 3, STDOUT = 1, STDERR = 2 };

static uint8_t *args[ARGS_MAX], *env[ENV_MAX];
static uint8_t args_text[TEXT_MAX], env_text[TEXT_MAX];
static char line[TEXT_MAX];
static size_t length;

// Appends text to the line; what does not fit is cut off.
static void add(const char *text)
{
    while (*text != '\0' && length < sizeof line)
        line[length++] = *text++;
}

// Appends a variable of the environment, or a question mark where the host did not set it.
static void add_env(const char *name, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *entry = (const char *)env[i];
        size_t n = 0;
        while (name[n] != '\0' && entry[n] == name[n])
            n++;
        if (name[n] == '\0' && entry[n] == '=') {
            add(entry + n + 1);
            return;
        }
    }
    add("?");
}

// Writes all bytes; returns 0, or -1 when the host takes no more.
static int put(__wasi_fd_t fd, const char *bytes, size_t size)
{
    while (size > 0) {
        __wasi_ciovec_t part = {(const uint8_t *)bytes, size};
        __wasi_size_t written = 0;
        if (__wasi_fd_write(fd, &part, 1, &written) != __WASI_ERRNO_SUCCESS || written == 0)
            return -1;
        bytes += written;
        size -= written;
    }
    return 0;
}

// Opens /out/hello.txt for writing. WASI hands a program no root folder but a few opened ones ("preopened"), with
// descriptors from 3 upwards: this looks for the one called /out.
static int open_output(__wasi_fd_t *file)
{
    __wasi_prestat_t about;
    for (__wasi_fd_t fd = FIRST_PREOPENED_FD; __wasi_fd_prestat_get(fd, &about) == __WASI_ERRNO_SUCCESS; fd++) {
        uint8_t name[4];
        size_t size = about.u.dir.pr_name_len;
        if (size != sizeof name || __wasi_fd_prestat_dir_name(fd, name, size) != __WASI_ERRNO_SUCCESS)
            continue;
        if (name[0] == '/' && name[1] == 'o' && name[2] == 'u' && name[3] == 't')
            return __wasi_path_open(fd, 0, "hello.txt", __WASI_OFLAGS_CREAT | __WASI_OFLAGS_TRUNC,
                                    __WASI_RIGHTS_FD_WRITE, 0, 0, file) == __WASI_ERRNO_SUCCESS
                       ? 0
                       : -1;
    }
    return -1;
}

static int fail(const char *why, size_t size)
{
    (void)put(STDERR, why, size);
    return 1;
}

int main(void)
{
    static const char too_long[] = "hello: the arguments or the environment are too long\n";
    static const char no_output[] = "hello: cannot write /out/hello.txt\n";

    __wasi_size_t argc, args_size, envc, env_size;
    if (__wasi_args_sizes_get(&argc, &args_size) != 0 || argc > ARGS_MAX || args_size > sizeof args_text ||
        __wasi_environ_sizes_get(&envc, &env_size) != 0 || envc > ENV_MAX || env_size > sizeof env_text ||
        __wasi_args_get(args, args_text) != 0 || __wasi_environ_get(env, env_text) != 0)
        return fail(too_long, sizeof too_long - 1);

    add("hello");
    for (size_t i = 1; i < argc; i++) {
        add(i == 1 ? ", " : " ");
        add((const char *)args[i]);
    }
    add("! this is task ");
    add_env("SOUK_TASK", envc);
    add(" of ");
    add_env("SOUK_TASK_COUNT", envc);
    add(", attempt ");
    add_env("SOUK_ATTEMPT", envc);
    add(", job ");
    add_env("SOUK_JOB", envc);
    add("\n");

    __wasi_fd_t file;
    if (put(STDOUT, line, length) != 0)
        return 1;
    if (open_output(&file) != 0 || put(file, line, length) != 0 || __wasi_fd_close(file) != 0)
        return fail(no_output, sizeof no_output - 1);
    return 0;
}
