/* SPDX-License-Identifier: MIT
 *
 * See secret.h.  Hashes, comparison in constant time and random bytes are libsodium's, and used here only.
 */
#include "runtime/launch/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/io/files.h"

/* A shorter one could be found by trying, from what two ranks say to each other. */
enum { LEAST_BYTES = 16, MOST_BYTES = 4096 };

static const char variable[] = "HALFSTEP_SECRET", file_variable[] = "HALFSTEP_SECRET_FILE";

static HsStatus start_library(void)
{
    return sodium_init() >= 0 ? HS_OK : hs_fail(HS_EDEVICE, "libsodium cannot be started: no random numbers");
}

static HsStatus make_key(const char *from, const unsigned char *bytes, size_t length, HsSecret *secret)
{
    if (length < LEAST_BYTES)
        return hs_fail(
            HS_ECONFIG,
            "%s holds fewer than %d bytes, which can be guessed: make one with head -c 32 /dev/urandom | base64", from,
            LEAST_BYTES);
    crypto_generichash(secret->key, sizeof secret->key, bytes, length, NULL, 0);
    secret->known = true;
    return HS_OK;
}

/* The file is opened first and looked at then, so that it is the same one. */
static HsStatus check_owner(const char *path, int descriptor)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0)
        return hs_fail(HS_ECONFIG, "%s: %s: %s", file_variable, path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return hs_fail(HS_ECONFIG, "%s: %s is not a file", file_variable, path);
    if (about.st_uid != geteuid() && about.st_uid != 0)
        return hs_fail(HS_ECONFIG, "%s: %s belongs to another user, and may be changed at any time: use your own file",
                       file_variable, path);
    if (about.st_mode & (S_IRWXG | S_IRWXO))
        return hs_fail(HS_ECONFIG, "%s: others may read or change %s (mode %03o): chmod 600 %s", file_variable, path,
                       (unsigned)about.st_mode & 0777u, path);
    return HS_OK;
}

static HsStatus read_file(const char *path, HsSecret *secret)
{
    unsigned char bytes[MOST_BYTES + 1];
    size_t length = 0;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return hs_fail(HS_ECONFIG, "%s: %s cannot be opened: %s", file_variable, path, strerror(errno));
    HsStatus status = check_owner(path, descriptor);
    for (ssize_t moved = 1; status == HS_OK && moved != 0 && length < sizeof bytes;) {
        moved = read(descriptor, bytes + length, sizeof bytes - length);
        if (moved < 0 && errno != EINTR)
            status = hs_fail(HS_ECONFIG, "%s: %s cannot be read: %s", file_variable, path, strerror(errno));
        length += moved > 0 ? (size_t)moved : 0;
    }
    close(descriptor);
    if (status == HS_OK && length > MOST_BYTES)
        status = hs_fail(HS_ECONFIG, "%s: %s holds more than %d bytes: write a shorter secret", file_variable, path,
                         MOST_BYTES);
    while (length > 0 && (bytes[length - 1] == '\n' || bytes[length - 1] == '\r')) /* as editors end a line */
        length--;
    if (status == HS_OK)
        status = make_key(path, bytes, length, secret);
    sodium_memzero(bytes, sizeof bytes);
    return status;
}

HsStatus hs_secret_read(HsSecret *secret)
{
    const char *const text = getenv(variable), *const path = getenv(file_variable);
    char *expanded;
    *secret = (HsSecret){ 0 };
    HS_TRY(start_library());
    if (text && path)
        return hs_fail(HS_ECONFIG, "%s and %s are both set: unset one", variable, file_variable);
    if (text)
        return make_key(variable, (const unsigned char *)text, strlen(text), secret);
    if (!path)
        return HS_OK;
    HS_TRY(hs_path_expand(path, &expanded));
    const HsStatus status = read_file(expanded, secret);
    free(expanded);
    return status;
}

HsStatus hs_secret_make(HsSecret *secret)
{
    HS_TRY(start_library());
    randombytes_buf(secret->key, sizeof secret->key);
    secret->known = true;
    return HS_OK;
}

void hs_secret_forget(HsSecret *secret)
{
    sodium_memzero(secret, sizeof *secret);
}

HsStatus hs_secret_nonce(unsigned char nonce[HS_SECRET_BYTES])
{
    HS_TRY(start_library());
    randombytes_buf(nonce, HS_SECRET_BYTES);
    return HS_OK;
}

_Static_assert(crypto_auth_BYTES == HS_SECRET_BYTES && crypto_auth_KEYBYTES == HS_SECRET_BYTES, "sizes of HMAC");

/* What is hashed. */
typedef struct Statement {
    char side[24];
    unsigned char own[HS_SECRET_BYTES], other[HS_SECRET_BYTES];
} Statement;

static Statement state(HsSide side, const unsigned char *own, const unsigned char *other)
{
    Statement statement = { 0 };
    static const char hub[] = "halfstep hub 1", newcomer[] = "halfstep newcomer 1";
    memcpy(statement.side, side == HS_SIDE_HUB ? hub : newcomer, side == HS_SIDE_HUB ? sizeof hub : sizeof newcomer);
    memcpy(statement.own, own, sizeof statement.own);
    memcpy(statement.other, other, sizeof statement.other);
    return statement;
}

void hs_secret_prove(const HsSecret *secret, HsSide side, const unsigned char own[HS_SECRET_BYTES],
                     const unsigned char other[HS_SECRET_BYTES], unsigned char proof[HS_SECRET_BYTES])
{
    const Statement statement = state(side, own, other);
    crypto_auth(proof, (const unsigned char *)&statement, sizeof statement, secret->key);
}

bool hs_secret_is_proved(const HsSecret *secret, HsSide side, const unsigned char own[HS_SECRET_BYTES],
                         const unsigned char other[HS_SECRET_BYTES], const unsigned char proof[HS_SECRET_BYTES])
{
    const Statement statement = state(side, own, other);
    return crypto_auth_verify(proof, (const unsigned char *)&statement, sizeof statement, secret->key) == 0;
}
