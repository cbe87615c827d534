/*
 * Gives each distinct value a number, in the order in which they come first, and holds each of them once.
 *
 * Values and numbers have Arrow's layout: a value lies between two starts, a null is a bit that is not set. The hash
 * begins with a secret, for whoever sends records must not be able to choose values that all meet in one slot.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef HASH_MASK /* a test makes all values meet, to see that they stay apart */
#define HASH_MASK UINT64_MAX
#endif

enum { VALUES_MIN = 1 << 10, BYTES_MIN = 64 << 10, NONE = -1 };

typedef struct {
    uint64_t secret;
    int64_t values, values_room; /* the slots are twice as many as there is room for values: half of them stay empty */
    int64_t bytes, bytes_room;
    uint8_t *data;
    int32_t *starts; /* where values begin, and where the last one ends */
    uint64_t *hashes;
    int32_t *slots;
} dictionary;

static uint64_t eight(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Both halves of the product, folded: each bit of one factor reaches all of the result. */
static uint64_t mixed(uint64_t one, uint64_t other) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const dictionary *of, const uint8_t *at, int64_t bytes) {
    uint64_t secret = mixed(of->secret, 0x9e3779b97f4a7c15u), tail = 0;
    uint64_t one = of->secret ^ (uint64_t)bytes, other = mixed(of->secret, 0xa0761d6478bd642fu);
    for (; bytes >= 32; at += 32, bytes -= 32) { /* two chains, so that neither waits for the other's product */
        one = mixed(eight(at) ^ secret, eight(at + 8) ^ one);
        other = mixed(eight(at + 16) ^ secret, eight(at + 24) ^ other);
    }
    for (; bytes >= 8; at += 8, bytes -= 8)
        one = mixed(eight(at) ^ secret, one ^ 0xe7037ed1a0b428dbu);
    memcpy(&tail, at, (size_t)bytes);
    return mixed(mixed(tail ^ secret, one ^ 0x8ebc6af09c88c6e3u), other ^ of->secret) & HASH_MASK;
}

/* Returns the slot of a value, or the empty one where it belongs. */
static int32_t *slot_of(const dictionary *of, uint64_t hash, const uint8_t *at, int64_t bytes) {
    uint64_t last = 2 * (uint64_t)of->values_room - 1, slot = hash & last;
    for (;; slot = (slot + 1) & last) {
        int32_t number = of->slots[slot];
        if (number == NONE)
            return of->slots + slot;
        if (of->hashes[number] == hash && of->starts[number + 1] - of->starts[number] == bytes &&
            !memcmp(of->data + of->starts[number], at, (size_t)bytes))
            return of->slots + slot;
    }
}

/* Makes room for so many values, a power of two. */
static int make_room(dictionary *of, int64_t room) {
    uint64_t last = 2 * (uint64_t)room - 1;
    int32_t *starts = realloc(of->starts, (size_t)(room + 1) * sizeof *starts);
    uint64_t *hashes = realloc(of->hashes, (size_t)room * sizeof *hashes);
    int32_t *slots = realloc(of->slots, 2 * (size_t)room * sizeof *slots);
    of->starts = starts ? starts : of->starts;
    of->hashes = hashes ? hashes : of->hashes;
    of->slots = slots ? slots : of->slots;
    if (!starts || !hashes || !slots)
        return 0;
    of->values_room = room;
    memset(slots, 0xff, 2 * (size_t)room * sizeof *slots); /* all NONE */
    for (int64_t number = 0; number < of->values; number++) {
        uint64_t slot = hashes[number] & last;
        while (slots[slot] != NONE)
            slot = (slot + 1) & last;
        slots[slot] = (int32_t)number;
    }
    return 1;
}

/* Makes room for so many more bytes. */
static int make_bytes_room(dictionary *of, int64_t bytes) {
    int64_t room = of->bytes_room;
    uint8_t *data;
    if (of->bytes + bytes > INT32_MAX)
        return 0;
    while (room < of->bytes + bytes)
        room *= 2;
    if (room == of->bytes_room)
        return 1;
    if (!(data = realloc(of->data, (size_t)room)))
        return 0;
    of->data = data;
    of->bytes_room = room;
    return 1;
}

/* Puts a value into its empty slot; returns its number, NONE if there is no room for it. */
static int32_t put(dictionary *of, int32_t *slot, uint64_t hash, const uint8_t *at, int64_t bytes) {
    int64_t number = of->values;
    if (!make_bytes_room(of, bytes))
        return NONE;
    memcpy(of->data + of->bytes, at, (size_t)bytes);
    of->bytes += bytes;
    of->hashes[number] = hash;
    of->starts[number + 1] = (int32_t)of->bytes;
    *slot = (int32_t)number;
    if (++of->values == of->values_room && !make_room(of, 2 * of->values_room))
        return NONE;
    return (int32_t)number;
}

void dictionary_free(dictionary *of) {
    if (of) {
        free(of->data);
        free(of->starts);
        free(of->hashes);
        free(of->slots);
        free(of);
    }
}

/* Returns an empty dictionary, NULL if there is no memory. */
dictionary *dictionary_new(uint64_t secret) {
    dictionary *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->secret = secret;
    made->bytes_room = BYTES_MIN;
    if (!(made->data = malloc(BYTES_MIN)) || !make_room(made, VALUES_MIN)) {
        dictionary_free(made);
        return NULL;
    }
    made->starts[0] = 0;
    return made;
}

/*
 * Tells the numbers of the values in so many rows of Arrow's buffers, NONE for a null, and returns 1; 0 if there is no
 * memory, or there are more bytes than starts can tell: then the dictionary is of no use any more. Without nulls `valid`
 * is NULL.
 */
int dictionary_add(dictionary *of, const int32_t *starts, const uint8_t *data, const uint8_t *valid, int64_t first,
                   int64_t count, int32_t *numbers) {
    for (int64_t row = first; row < first + count; row++) {
        const uint8_t *at = data + starts[row];
        int64_t bytes = starts[row + 1] - starts[row];
        int32_t number = NONE;
        if (!valid || valid[row >> 3] >> (row & 7) & 1) {
            uint64_t hash = hash_of(of, at, bytes);
            int32_t *slot = slot_of(of, hash, at, bytes);
            number = *slot;
            if (number == NONE && (number = put(of, slot, hash, at, bytes)) == NONE)
                return 0;
        }
        *numbers++ = number;
    }
    return 1;
}
