/*
 * Takes records off a librdkafka queue and lays them out as columns, without a Python object for any of them.
 *
 * This is a plugin of librdkafka (plugin.library.paths): librdkafka loads it, calls `conf_init`, and tells it of the
 * client that is made; Python asks for that client on the same thread, by `take_client`. `take` then fills a batch from a
 * queue. Of librdkafka's ways to read one, that by a callback takes transaction markers of a partition's previous life for
 * present ones, by which records could be passed over, and that by events costs a lock and two looks at the clock more
 * for each record. The one by arrays of messages, which confluent_kafka uses too, calls the client's error callback for
 * some errors. Confluent_kafka's own would want Python's lock then, which we do not hold, and end the process; so it is
 * replaced by ours, `note`, which only writes down what it is told. `take` hands that out with the rest.
 *
 * A batch's columns are ours until Python has taken them over; it gives each back by `give_back`.
 *
 * librdkafka's functions are looked up in the library that confluent_kafka has loaded, so nothing is linked and no
 * header is needed: what is declared here is its public interface, whose binary form its version 1 promises to keep.
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

/* --- getting hold of a client --------------------------------------------------------------------------------------- */

enum { ERRORS_MAX = 16 };

/* What this thread's calls of librdkafka were told by the error callback; the oldest goes if nobody asks for them. */
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

/* Called by librdkafka at the end of making a client, when nobody else has it yet: so its configuration may be changed. */
static int remember(client *made, const config *conf, void *opaque, char *text, size_t text_bytes) {
    (void)opaque, (void)text, (void)text_bytes;
    kafka.set_on_error((config *)conf, note);
    made_here = made;
    return 0;
}

/* Tells whether errors come to us indeed; librdkafka shows a callback as its address. */
static int errors_are_noted(client *of) {
    char ours[64], found[64];
    size_t bytes = sizeof found;
    snprintf(ours, sizeof ours, "%p", (void *)(uintptr_t)note);
    return !kafka.get_config(kafka.config_of(of), "error_cb", found, &bytes) && !strcmp(ours, found);
}

/* Called by librdkafka when a configuration names this plugin. */
int conf_init(config *conf, void **opaque, char *text, size_t text_bytes) {
    (void)opaque, (void)text, (void)text_bytes;
    return kafka.add_on_new(conf, "ingestor", remember, NULL);
}

/* Returns the client that this thread has made last, once; NULL if there is none whose errors would come to us. */
client *take_client(void) {
    client *taken = made_here;
    made_here = NULL;
    return taken && errors_are_noted(taken) ? taken : NULL;
}

/* Looks librdkafka's functions up; returns the name of one that is missing, NULL if all are there. */
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

typedef struct { /* one of Arrow's binary columns */
    column starts, data, valid;
    int64_t nulls;
} binary;

typedef struct { /* what is no record; of the whole client if it has no topic */
    int32_t error, partition;
    int64_t offset;
    char topic[256], text[512];
} event;

typedef struct {
    /* told by Python: how much to take at the most, of what, and how much is likely to come */
    int64_t records_max, bytes_max, records_likely, bytes_likely;
    int32_t wanted;
    /* filled */
    int32_t out_of_memory;
    int64_t records, bytes;
    column topics, topic_names; /* the topics as librdkafka knows them, their names, each ended by NUL */
    column topic_codes, partitions, offsets, timestamps, timestamp_types;
    binary payloads, keys;
    column header_starts;
    binary header_names, header_values;
    column events;
} batch;

typedef struct { /* what was read at once, and how far it is taken in */
    message *came[AT_ONCE_MAX];
    int64_t count, at;
} reading;

/* Returns where so many more bytes go, NULL if there is no memory for them: then the batch is of no use. */
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

/* Tells the place of a topic among those that were met; most often it is that of the record before. */
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
    /* None, or not to be read: no headers, as confluent_kafka has it. */
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

/* Hands out what this thread has noted of a client. */
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

/* Returns how many records may be read at once: so many as fit if they are as large as those before. */
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

/* Makes room for what is likely to come. */
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

/* Gives back the room of what did not come. */
static void finish(batch *into) {
    column *columns[] = {&into->topic_codes, &into->partitions, &into->offsets, &into->timestamps,
                         &into->payloads.starts, &into->payloads.data, &into->payloads.valid};
    for (size_t at = 0; at < sizeof columns / sizeof *columns; at++)
        shrink(columns[at]);
}

/* Puts what was read into a batch, as far as it fits; of a batch that is of no use nothing is kept. */
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

/* Fills an empty batch with what was left of the reading before and what comes of a client's queue within the timeout,
 * until it is full. Records larger than those before them may leave some in the reading: they go into the next batch. */
void take(const client *of, queue *from, int timeout_ms, reading *rest, batch *into) {
    int64_t over = now_ms() + timeout_ms;
    ssize_t asked = 0;
    start(into);
    put(rest, into);
    while (rest->count == asked && !is_full(into)) { /* fewer come only when the time is over */
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
