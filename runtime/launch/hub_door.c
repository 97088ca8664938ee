/* SPDX-License-Identifier: MIT
 *
 * The door of the hub: rank 0 lets the other ranks in.
 *
 *     rank 0                                    newcomer
 *     challenge: magic, nonce          -->
 *                                      <--      answer: its nonce, its proof over both nonces
 *     proof over both nonces           -->
 *                                      <--      hello: what rank it is (HsHubMember)
 *     welcome, or refused with a text  -->
 *
 * A proof says that its side knows the run's secret (secret.h), and serves for this connection alone, as the nonces do.
 * Until the newcomer's is right, nothing that it sends is looked at: two fields of fixed size, whatever they hold.  One
 * that sends something else, or does not send it in time, is closed and counted, and one line in the end says how many.
 * Without a secret the hub is on the loopback address, where the system says which user's process a newcomer is:
 * another user's is closed.
 *
 * All newcomers are read at a time, so that a silent one keeps no other waiting.  When there is no room for one more,
 * the one that has been silent for longest is closed.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/log.h"
#include "runtime/launch/hub_internal.h"

enum { NEWCOMERS = 64 };
/* From connecting to the hello; between ranks it takes milliseconds. */
static const double patience_s = 10;

static const char door_magic[8] = "HSDOOR1";

typedef struct Challenge {
    char magic[8];
    unsigned char nonce[HS_SECRET_BYTES];
} Challenge;

typedef struct Answer {
    unsigned char nonce[HS_SECRET_BYTES], proof[HS_SECRET_BYTES];
} Answer;

typedef struct Hello {
    HsFrame frame;
    HsHubMember member;
} Hello;

typedef struct Newcomer {
    int socket;
    bool proved; /* its answer was right: the hello comes next */
    double since_s;
    size_t used; /* bytes of `heard` */
    unsigned char nonce[HS_SECRET_BYTES];
    union {
        Answer answer;
        Hello hello;
    } heard;
} Newcomer;

typedef struct Door {
    HsHub *hub;
    Newcomer newcomers[NEWCOMERS];
    int count;
    int64_t strangers, users, silent, crowded; /* connections that were closed */
} Door;

static const HsSecret no_secret;

static const HsSecret *secret_of(const HsHub *hub)
{
    return hub->secret ? hub->secret : &no_secret;
}

/* What a newcomer said does not fit this run: why; false: it does. */
static bool is_wrong(const HsHub *hub, const HsHubMember *member, char *text, size_t bytes)
{
    const HsHubMember *own = &hub->members[0];
    char named[256], other[256];
    hs_hub_describe(member, NULL, named, sizeof named);
    if (member->size != own->size)
        snprintf(text, bytes, "%s belongs to a run of another size: rank 0 counts %d", named, own->size);
    else if (member->rank <= 0 || member->rank >= own->size)
        snprintf(text, bytes, "%s: there are ranks 0 to %d, and rank 0 is here already", named, own->size - 1);
    else if (member->configuration != own->configuration)
        snprintf(text, bytes, "%s has another configuration than rank 0: all ranks read the same file and command line",
                 named);
    else if (hub->links[member->rank].socket >= 0) {
        hs_hub_describe(&hub->members[member->rank], NULL, other, sizeof other);
        snprintf(text, bytes, "%s came although %s is here already", named, other);
    } else
        return false;
    return true;
}

void hs_hub_refuse(int socket, const char *why)
{
    hs_wire_send(socket, HS_FRAME_REFUSED, why, strlen(why) + 1, hs_clock_s() + 1);
}

/* *stays: the connection is a rank's.  An error ends the run; other connections are closed. */
static HsStatus admit(HsHub *hub, int socket, const HsHubMember *member, bool *stays)
{
    char why[768];
    *stays = false;
    if (member->magic != hs_hub_magic || memchr(member->run, '\0', sizeof member->run) == NULL ||
        memchr(member->host, '\0', sizeof member->host) == NULL) {
        hs_warn("closed the connection of a rank that runs another build of this program: all hosts must run the same");
        hs_hub_refuse(socket, "rank 0 runs another build of this program: all hosts must run the same");
        return HS_OK;
    }
    if (strcmp(member->run, hub->members[0].run) != 0) {
        char named[256];
        hs_hub_describe(member, NULL, named, sizeof named);
        snprintf(why, sizeof why, "%s of run '%.63s' connected to run '%.63s'", named, member->run,
                 hub->members[0].run);
        hs_warn("%s: connection closed", why);
        hs_hub_refuse(socket, why);
        return HS_OK;
    }
    if (is_wrong(hub, member, why, sizeof why)) {
        hs_hub_refuse(socket, why);
        return hs_fail(HS_ECONFIG, "%s", why);
    }
    if (hs_wire_send(socket, HS_FRAME_WELCOME, NULL, 0, hs_clock_s() + 1) != HS_OK)
        return HS_OK; /* it went away again, and may come back */
    hub->members[member->rank] = *member;
    hub->links[member->rank].socket = socket;
    hub->here++;
    *stays = true;
    return HS_OK;
}

/* --- newcomers --- */

static void leave(Door *door, int index)
{
    door->newcomers[index] = door->newcomers[--door->count];
}

static void turn_away(Door *door, int index, int64_t *counter)
{
    close(door->newcomers[index].socket);
    leave(door, index);
    ++*counter;
}

/* Room for one more: the oldest of those that have not proved anything goes. */
static bool make_room(Door *door)
{
    int oldest = -1;
    if (door->count < NEWCOMERS)
        return true;
    for (int i = 0; i < door->count; i++)
        if (!door->newcomers[i].proved && (oldest < 0 || door->newcomers[i].since_s < door->newcomers[oldest].since_s))
            oldest = i;
    if (oldest >= 0)
        turn_away(door, oldest, &door->crowded);
    return oldest >= 0;
}

static HsStatus greet(Door *door, int socket)
{
    Challenge challenge;
    if (!secret_of(door->hub)->known && hs_wire_is_other_user(socket)) {
        close(socket);
        door->users++;
        return HS_OK;
    }
    if (!make_room(door)) {
        close(socket);
        door->crowded++;
        return HS_OK;
    }
    memcpy(challenge.magic, door_magic, sizeof challenge.magic);
    const HsStatus status = hs_secret_nonce(challenge.nonce);
    /* It fits into the empty buffer of a new connection: there is nothing to wait for. */
    if (status != HS_OK || hs_wire_write(socket, &challenge, sizeof challenge, hs_clock_s()) != HS_OK) {
        close(socket);
        return status;
    }
    Newcomer *newcomer = &door->newcomers[door->count++];
    *newcomer = (Newcomer){ .socket = socket, .since_s = hs_clock_s() };
    memcpy(newcomer->nonce, challenge.nonce, sizeof newcomer->nonce);
    return HS_OK;
}

/* The whole answer is there.  false: it knows another secret, or none. */
static bool check_answer(const Door *door, Newcomer *newcomer)
{
    unsigned char proof[HS_SECRET_BYTES];
    const Answer *answer = &newcomer->heard.answer;
    const HsSecret *secret = secret_of(door->hub);
    if (!hs_secret_is_proved(secret, HS_SIDE_NEWCOMER, answer->nonce, newcomer->nonce, answer->proof))
        return false;
    hs_secret_prove(secret, HS_SIDE_HUB, newcomer->nonce, answer->nonce, proof);
    newcomer->proved = true;
    newcomer->used = 0;
    return hs_wire_write(newcomer->socket, proof, sizeof proof, hs_clock_s()) == HS_OK;
}

/* The whole hello is there, or what cannot be one. */
static HsStatus take_hello(Door *door, int index)
{
    Newcomer *newcomer = &door->newcomers[index];
    bool stays = false;
    Hello *hello = &newcomer->heard.hello;
    if (hello->frame.kind != HS_FRAME_HELLO || hello->frame.bytes != sizeof hello->member)
        hello->member.magic = 0;
    const HsStatus status = admit(door->hub, newcomer->socket, &hello->member, &stays);
    if (!stays)
        close(newcomer->socket);
    leave(door, index);
    return status;
}

/* Reads what is there, and no more than what is due next. */
static HsStatus hear(Door *door, int index)
{
    Newcomer *newcomer = &door->newcomers[index];
    const size_t due = newcomer->proved ? sizeof newcomer->heard.hello : sizeof newcomer->heard.answer;
    unsigned char *to = (unsigned char *)&newcomer->heard + newcomer->used;
    const ssize_t moved = read(newcomer->socket, to, due - newcomer->used);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR))
        return HS_OK;
    if (moved <= 0) {
        turn_away(door, index, &door->strangers);
        return HS_OK;
    }
    newcomer->used += (size_t)moved;
    const bool foreign = newcomer->proved && newcomer->used >= sizeof(HsFrame) &&
                         (newcomer->heard.hello.frame.kind != HS_FRAME_HELLO ||
                          newcomer->heard.hello.frame.bytes != sizeof(HsHubMember));
    if (newcomer->used < due && !foreign)
        return HS_OK;
    if (newcomer->proved)
        return take_hello(door, index);
    if (!check_answer(door, newcomer))
        turn_away(door, index, &door->strangers);
    return HS_OK;
}

static HsStatus hear_all(Door *door, const struct pollfd *waiting)
{
    const double now_s = hs_clock_s();
    for (int i = door->count - 1; i >= 0; i--) /* from the end: one that leaves is replaced by one that was heard */
        if (waiting[i].revents)
            HS_TRY(hear(door, i));
        else if (now_s - door->newcomers[i].since_s > patience_s)
            turn_away(door, i, &door->silent);
    return HS_OK;
}

static HsStatus gather(Door *door, double deadline_s)
{
    HsHub *hub = door->hub;
    struct pollfd waiting[NEWCOMERS + 1];
    while (hub->here < hub->size - 1) {
        const double left_s = deadline_s - hs_clock_s();
        const int count = door->count;
        if (left_s <= 0)
            return hs_fail(HS_EDEVICE, "absent");
        for (int i = 0; i < count; i++)
            waiting[i] = (struct pollfd){ .fd = door->newcomers[i].socket, .events = POLLIN };
        waiting[count] = (struct pollfd){ .fd = hub->listener, .events = POLLIN };
        if (poll(waiting, (nfds_t)count + 1, left_s < 0.5 ? (int)(left_s * 1e3) + 1 : 500) < 0)
            continue;
        HS_TRY(hear_all(door, waiting));
        const int socket = waiting[count].revents ? hs_wire_accept(hub->listener) : -1;
        if (socket >= 0)
            HS_TRY(greet(door, socket));
    }
    return HS_OK;
}

HsStatus hs_hub_gather(HsHub *hub, double deadline_s)
{
    Door door = { .hub = hub };
    const HsStatus status = gather(&door, deadline_s);
    for (int i = 0; i < door.count; i++)
        close(door.newcomers[i].socket);
    if (door.strangers + door.users + door.silent + door.crowded > 0)
        hs_warn("connections that were closed while ranks came together: %lld did not prove that they know the secret, "
                "%lld were another user's, %lld were silent, %lld found no room",
                (long long)door.strangers, (long long)door.users, (long long)door.silent, (long long)door.crowded);
    return status;
}

HsStatus hs_hub_enter(const HsHub *hub, int socket, double deadline_s, bool *is_other)
{
    Challenge challenge;
    Answer answer;
    unsigned char proof[HS_SECRET_BYTES];
    const HsSecret *secret = secret_of(hub);
    HS_TRY(hs_wire_read(socket, &challenge, sizeof challenge, deadline_s));
    if (memcmp(challenge.magic, door_magic, sizeof door_magic) != 0)
        return hs_fail(HS_EIO, "no hub of this program listens there");
    HS_TRY(hs_secret_nonce(answer.nonce));
    hs_secret_prove(secret, HS_SIDE_NEWCOMER, answer.nonce, challenge.nonce, answer.proof);
    HS_TRY(hs_wire_write(socket, &answer, sizeof answer, deadline_s));
    HsStatus status = hs_wire_read(socket, proof, sizeof proof, deadline_s);
    if (status == HS_OK && !hs_secret_is_proved(secret, HS_SIDE_HUB, challenge.nonce, answer.nonce, proof))
        status = hs_fail(HS_EIO, "the hub that listens there knows another secret");
    *is_other |= status != HS_OK;
    return status;
}

void hs_hub_describe(const HsHubMember *member, const HsHubBeat *beat, char *text, size_t bytes)
{
    const HsCommPlace place = { .rank = member->rank,
                                .size = member->size,
                                .host = member->host,
                                .process = member->process,
                                .step = beat ? beat->step : -1,
                                .operation = beat ? beat->operation : NULL,
                                .sequence = beat ? beat->sequence : 0 };
    hs_comm_describe(&place, text, bytes);
}
