/*
 * Reads records from a librdkafka queue into columns, without a Python object per record. See README.md.
 *
 * This is a librdkafka plugin (plugin.library.paths). librdkafka loads it, calls `conf_init`, and calls its `on_new`
 * interceptor with each client that is created. Python then gets that client on the same thread by `take_client`, and
 * fills batches by `take`.
 *
 * `take` reads by rd_kafka_consume_batch_queue, as confluent_kafka does. librdkafka has two other ways. The one by a
 * callback handles transaction markers before it checks whether they are outdated, so a marker of an earlier assignment
 * could move the position past records. The one by events costs a lock and two clock readings more per record.
 *
 * rd_kafka_consume_batch_queue calls the client's error callback for some errors. confluent_kafka's callback expects a
 * call of confluent_kafka on this thread, and would end the process. So `on_new` replaces it by `note`, which only stores
 * the error. `take` returns the stored errors as events.
 *
 * A batch's columns belong to this library until Python takes them over; Python frees each by `give_back`.
 *
 * librdkafka's functions are looked up in the library that confluent_kafka has loaded, so nothing is linked and no
 * header is needed. What is declared here is librdkafka's public C interface, whose ABI it guarantees to keep.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

typedef struct client client;   /* rd_kafka_t */
typedef struct config config;   /* rd_kafka_conf_t */
typedef struct topic topic;     /* rd_kafka_topic_t */
typedef struct headers headers; /* rd_kafka_headers_t */
typedef struct queue queue;     /* rd_kafka_queue_t */

typedef struct { /* rd_kafka_message_t */
    int error;
    topic *topic;
    int32_t partition;
    void *payload;
    size_t payload_bytes;
    void *key;
    size_t key_bytes;
    int64_t offset;
    void *librdkafkas;
} message;

typedef void on_error(client *, int error, const char *text, void *opaque);
typedef int on_new(client *made, const config *, void *opaque, char *text, size_t text_bytes);

static struct {
    int (*add_on_new)(config *, const char *name, on_new *, void *opaque);
    const config *(*config_of)(client *);
    int (*get_config)(const config *, const char *name, char *value, size_t *value_bytes);
    void (*set_on_error)(config *, on_error *);
    ssize_t (*read)(queue *, int timeout_ms, message **, size_t count);
    const char *(*error_text)(const message *);
    void (*destroy)(message *);
    int64_t (*timestamp)(const message *, int *type);
    int (*headers)(const message *, headers **);
    int (*header)(const headers *, size_t index, const char **name, const void **value, size_t *value_bytes);
    const char *(*topic_name)(const topic *);
} kafka;

static void copy_text(char *to, size_t room, const char *text) {
    snprintf(to, room, "%s", text ? text : "");
}

/* --- the client ----------------------------------------------------------------------------------------------------- */

enum { ERRORS_MAX = 16 };

/* The errors of this thread's calls of librdkafka; when there is no room, the oldest is dropped. */
static _Thread_local struct {
    client *of;
    int error;
    char text[512];
} errors[ERRORS_MAX];
static _Thread_local unsigned errors_noted;

static void note(client *of, int error, const char *text, void *opaque) {
    unsigned at = errors_noted++ % ERRORS_MAX;
    (void)opaque;
    errors[at].of = of;
    errors[at].error = error;
    copy_text(errors[at].text, sizeof errors[at].text, text);
}

static _Thread_local client *made_here;

/* The `on_new` interceptor. rd_kafka_new calls it on the caller's thread, right after it has copied the configuration
 * into the client, and before it creates the client's queues and starts its threads. So nothing reads `conf` at the same
 * time, and nothing has read error_cb yet: changing it here is safe, and as if the application had set it. `conf` is
 * the client's own configuration; it is const only by its type. */
static int remember(client *made, const config *conf, void *opaque, char *text, size_t text_bytes) {
    (void)opaque, (void)text, (void)text_bytes;
    kafka.set_on_error((config *)conf, note);
    made_here = made;
    return 0;
}

/* Returns whether the client's error callback is ours; rd_kafka_conf_get returns a callback as its address. It is not if
 * a later plugin has set another, or if a future librdkafka calls on_new with a copy of the configuration. */
static int errors_are_noted(client *of) {
    char ours[64], found[64];
    size_t bytes = sizeof found;
    snprintf(ours, sizeof ours, "%p", (void *)(uintptr_t)note);
    return !kafka.get_config(kafka.config_of(of), "error_cb", found, &bytes) && !strcmp(ours, found);
}

/* Called by librdkafka when a configuration with this plugin is set. */
int conf_init(config *conf, void **opaque, char *text, size_t text_bytes) {
    (void)opaque, (void)text, (void)text_bytes;
    return kafka.add_on_new(conf, "ingestor", remember, NULL);
}

/* Returns the client that this thread created last, once; NULL if there is none or its error callback is not ours. */
client *take_client(void) {
    client *taken = made_here;
    made_here = NULL;
    return taken && errors_are_noted(taken) ? taken : NULL;
}

/* Looks up librdkafka's functions; returns the name of one that is missing, NULL if there is none. */
const char *attach(const char *library) {
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!loaded)
        return library;
#define LOOK_UP(field, name)                                                                                          \
    if (!(*(void **)&kafka.field = dlsym(loaded, name)))                                                              \
    return name
    LOOK_UP(add_on_new, "rd_kafka_conf_interceptor_add_on_new");
    LOOK_UP(config_of, "rd_kafka_conf");
    LOOK_UP(get_config, "rd_kafka_conf_get");
    LOOK_UP(set_on_error, "rd_kafka_conf_set_error_cb");
    LOOK_UP(read, "rd_kafka_consume_batch_queue");
    LOOK_UP(error_text, "rd_kafka_message_errstr");
    LOOK_UP(destroy, "rd_kafka_message_destroy");
    LOOK_UP(timestamp, "rd_kafka_message_timestamp");
    LOOK_UP(headers, "rd_kafka_message_headers");
    LOOK_UP(header, "rd_kafka_header_get_all");
    LOOK_UP(topic_name, "rd_kafka_topic_name");
#undef LOOK_UP
    return NULL;
}

/* --- columns that grow ------------------------------------------------------------------------------------------------ */

enum { WANT_KEYS = 1, WANT_HEADERS = 2, WANT_TIMESTAMP_TYPES = 4 };
enum { ROOM_MIN = 256, SLACK_MAX = 64 << 10, AT_ONCE_MAX = 1000 };

typedef struct {
    uint8_t *bytes;
    int64_t used, room;
} column;

typedef struct { /* an Arrow binary column */
    column starts, data, valid;
    int64_t nulls;
} binary;

typedef struct { /* a partition's end or error; without a topic an error of the whole client */
    int32_t error, partition;
    int64_t offset;
    char topic[256], text[512];
} event;

typedef struct {
    /* set by Python: the limits, the wanted columns, and an estimate */
    int64_t records_max, bytes_max, records_likely, bytes_likely;
    int32_t wanted;
    /* set by `take` */
    int32_t out_of_memory;
    int64_t records, bytes;
    column topics, topic_names; /* librdkafka's topic handles, and their names, each with a NUL at its end */
    column topic_codes, partitions, offsets, timestamps, timestamp_types;
    binary payloads, keys;
    column header_starts;
    binary header_names, header_values;
    column events;
} batch;

typedef struct { /* the messages of one read, and the index of the next one to put into columns */
    message *came[AT_ONCE_MAX];
    int64_t count, at;
} reading;

/* Makes room for more bytes and returns their address; without memory returns NULL and marks the batch as unusable. */
static void *more(batch *into, column *one, int64_t bytes) {
    if (one->used + bytes > one->room || !one->bytes) {
        int64_t room = 2 * one->room;
        uint8_t *grown;
        if (room < one->used + bytes)
            room = one->used + bytes;
        if (room < ROOM_MIN)
            room = ROOM_MIN;
        if (!(grown = realloc(one->bytes, room))) {
            into->out_of_memory = 1;
            return NULL;
        }
        one->bytes = grown;
        one->room = room;
    }
    one->used += bytes;
    return one->bytes + one->used - bytes;
}

static void reserve(batch *into, column *one, int64_t bytes) {
    if (more(into, one, bytes))
        one->used -= bytes;
}

static void shrink(column *one) {
    uint8_t *smaller;
    if (one->room - one->used > SLACK_MAX && one->used < one->room / 2 && one->used > 0 &&
        (smaller = realloc(one->bytes, one->used))) {
        one->bytes = smaller;
        one->room = one->used;
    }
}

static void put32(batch *into, column *one, int32_t value) {
    int32_t *place = more(into, one, sizeof value);
    if (place)
        *place = value;
}

static void put64(batch *into, column *one, int64_t value) {
    int64_t *place = more(into, one, sizeof value);
    if (place)
        *place = value;
}

static void put_bytes(batch *into, binary *one, const void *bytes, size_t count) {
    int64_t row = one->starts.used / (int64_t)sizeof(int32_t) - 1;
    uint8_t *place;
    if (row % 8 == 0 && (place = more(into, &one->valid, 1)))
        *place = 0;
    if (!bytes)
        one->nulls++;
    else if ((place = more(into, &one->data, (int64_t)count)) && !into->out_of_memory) {
        memcpy(place, bytes, count);
        one->valid.bytes[row >> 3] |= (uint8_t)(1 << (row & 7));
    }
    put32(into, &one->starts, (int32_t)one->data.used);
}

static void begin(batch *into, binary *one, int64_t records, int64_t bytes) {
    reserve(into, &one->starts, (records + 1) * (int64_t)sizeof(int32_t));
    reserve(into, &one->valid, records / 8 + 1);
    reserve(into, &one->data, bytes);
    put32(into, &one->starts, 0);
}

/* --- from messages to columns ---------------------------------------------------------------------------------------- */

/* Puts the index of a record's topic in `topics`, adding a new topic; most often it is that of the record before. */
static void put_topic(batch *into, topic *wanted) {
    topic **met = (topic **)into->topics.bytes, **place;
    int32_t count = (int32_t)(into->topics.used / (int64_t)sizeof *met);
    int32_t code = into->records ? ((int32_t *)into->topic_codes.bytes)[into->records - 1] : 0;
    if (code >= count || met[code] != wanted)
        for (code = 0; code < count && met[code] != wanted; code++)
            ;
    if (code == count) {
        const char *name = kafka.topic_name(wanted);
        int64_t bytes = (int64_t)strlen(name) + 1;
        char *text = more(into, &into->topic_names, bytes);
        if (text)
            memcpy(text, name, bytes);
        if ((place = more(into, &into->topics, sizeof wanted)))
            *place = wanted;
    }
    put32(into, &into->topic_codes, code);
}

static void put_headers(batch *into, const message *record) {
    headers *found;
    const char *name;
    const void *value;
    size_t value_bytes;
    /* No headers, also if they can't be parsed: as in confluent_kafka. */
    if (kafka.headers(record, &found))
        found = NULL;
    for (size_t index = 0; found && !kafka.header(found, index, &name, &value, &value_bytes); index++) {
        put_bytes(into, &into->header_names, name, strlen(name));
        put_bytes(into, &into->header_values, value, value_bytes);
        into->bytes += (int64_t)(strlen(name) + value_bytes);
    }
    put32(into, &into->header_starts, (int32_t)(into->header_names.starts.used / (int64_t)sizeof(int32_t)) - 1);
}

static void put_record(batch *into, const message *record) {
    int type;
    uint8_t *place;
    put_topic(into, record->topic);
    put32(into, &into->partitions, record->partition);
    put64(into, &into->offsets, record->offset);
    put64(into, &into->timestamps, kafka.timestamp(record, &type));
    put_bytes(into, &into->payloads, record->payload, record->payload_bytes);
    into->bytes += (int64_t)record->payload_bytes;
    if (into->wanted & WANT_TIMESTAMP_TYPES && (place = more(into, &into->timestamp_types, 1)))
        *place = (uint8_t)type;
    if (into->wanted & WANT_KEYS) {
        put_bytes(into, &into->keys, record->key, record->key_bytes);
        into->bytes += (int64_t)record->key_bytes;
    }
    if (into->wanted & WANT_HEADERS)
        put_headers(into, record);
    into->records++;
}

static event *put_event(batch *into, int error, const char *text) {
    event *place = more(into, &into->events, sizeof *place);
    if (place) {
        memset(place, 0, sizeof *place);
        place->error = error;
        copy_text(place->text, sizeof place->text, text);
    }
    return place;
}

static void put_event_of(batch *into, const message *one) {
    event *place = put_event(into, one->error, kafka.error_text(one));
    if (place) {
        place->partition = one->partition;
        place->offset = one->offset;
        copy_text(place->topic, sizeof place->topic, one->topic ? kafka.topic_name(one->topic) : NULL);
    }
}

/* Puts the errors that this thread has stored of a client. */
static void put_errors(batch *into, const client *of) {
    unsigned at = errors_noted > ERRORS_MAX ? errors_noted - ERRORS_MAX : 0;
    for (; at < errors_noted; at++)
        if (errors[at % ERRORS_MAX].of == of) {
            put_event(into, errors[at % ERRORS_MAX].error, errors[at % ERRORS_MAX].text);
            errors[at % ERRORS_MAX].of = NULL;
        }
}

static int is_full(const batch *one) {
    return one->records >= one->records_max || one->bytes >= one->bytes_max || one->out_of_memory;
}

/* Returns how many records to read at once: as many as fit if they have the average size of those before. */
static size_t at_once(const batch *into) {
    int64_t records = into->records ? into->records : into->records_likely;
    int64_t bytes = into->records ? into->bytes : into->bytes_likely;
    int64_t fit = records ? (into->bytes_max - into->bytes) / (bytes / records + 1) : 1;
    if (fit > into->records_max - into->records)
        fit = into->records_max - into->records;
    return fit < 1 ? 1 : fit < AT_ONCE_MAX ? (size_t)fit : AT_ONCE_MAX;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reserves room for the estimate. */
static void start(batch *into) {
    begin(into, &into->payloads, into->records_likely, into->bytes_likely);
    reserve(into, &into->topic_codes, into->records_likely * (int64_t)sizeof(int32_t));
    reserve(into, &into->partitions, into->records_likely * (int64_t)sizeof(int32_t));
    reserve(into, &into->offsets, into->records_likely * (int64_t)sizeof(int64_t));
    reserve(into, &into->timestamps, into->records_likely * (int64_t)sizeof(int64_t));
    if (into->wanted & WANT_KEYS)
        begin(into, &into->keys, 0, 0);
    if (into->wanted & WANT_HEADERS) {
        begin(into, &into->header_names, 0, 0);
        begin(into, &into->header_values, 0, 0);
        put32(into, &into->header_starts, 0);
    }
}

/* Frees room that was not used. */
static void finish(batch *into) {
    column *columns[] = {&into->topic_codes, &into->partitions, &into->offsets, &into->timestamps,
                         &into->payloads.starts, &into->payloads.data, &into->payloads.valid};
    for (size_t at = 0; at < sizeof columns / sizeof *columns; at++)
        shrink(columns[at]);
}

/* Puts messages that were read into a batch, as far as they fit; drops them if the batch is unusable. */
static void put(reading *from, batch *into) {
    for (; from->at < from->count && (into->out_of_memory || !is_full(into)); from->at++) {
        message *one = from->came[from->at];
        if (one->error)
            put_event_of(into, one);
        else if (!into->out_of_memory)
            put_record(into, one);
        kafka.destroy(one);
    }
}

/* Fills an empty batch with the rest of the read before and with what arrives on a client's queue within the timeout,
 * until it is full. If records are larger than estimated, some stay in `rest` for the next batch. */
void take(const client *of, queue *from, int timeout_ms, reading *rest, batch *into) {
    int64_t over = now_ms() + timeout_ms;
    ssize_t asked = 0;
    start(into);
    put(rest, into);
    while (rest->count == asked && !is_full(into)) { /* a read returns fewer only at its timeout */
        int64_t left = over - now_ms();
        asked = (ssize_t)at_once(into);
        rest->at = 0;
        rest->count = kafka.read(from, left > 0 ? (int)left : 0, rest->came, (size_t)asked);
        put(rest, into);
    }
    put_errors(into, of);
    finish(into);
}

void give_back(void *bytes) {
    free(bytes);
}
