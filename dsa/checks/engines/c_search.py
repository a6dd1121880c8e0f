"""The part of the generated C program that is the same for every machine; `c_source.py` puts the rest at its mark.

A search goes layer by layer. The configurations of a layer lie by location, each as its data alone. What is offered to a location where
configurations must be remembered waits in a ring until its memory has been fetched.
"""

SEARCH = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 32
enum { SLICE_DONE, LAYER_DONE, SEARCH_DONE, NO_MEMORY };

struct part {
    DATA *now, *next;
    uint64_t width, next_width, now_room, next_room;
    DATA ahead[AHEAD];
    uint64_t offered;
};

struct search {
    uint64_t *known, slots;      /* the bitmap; or the hash table (number + 1; 0 is free) */
    uint64_t at_part, at;        /* how far this layer has been looked at */
    uint64_t found, remembered, bytes, budget;
    int no_memory;
    uint64_t count[LOCATIONS], taken[RULES], hit_place[WATCHES], hit_data[WATCHES];
    unsigned char is_hit[WATCHES];
    struct part parts[LOCATIONS];
};

typedef void (*visitor)(struct search *, const DATA *, uint64_t);

static int more_room(struct search *s, struct part *p)
{
    uint64_t room = p->next_room ? p->next_room + p->next_room / 2 : 64;
    DATA *fresh;
    /* while it grows, both may be there */
    if (s->bytes + room * sizeof(DATA) > s->budget) { s->no_memory = 1; return 0; }
    fresh = realloc(p->next, room * sizeof(DATA));
    if (!fresh) { s->no_memory = 1; return 0; }
    s->bytes += (room - p->next_room) * sizeof(DATA);
    p->next = fresh;
    p->next_room = room;
    return 1;
}

static void add(struct search *s, struct part *p, DATA data)
{
    if (p->next_width == p->next_room && !more_room(s, p)) return;
    p->next[p->next_width++] = data;
    s->found++;
}

#if BITMAP
static uint64_t *slot_of(struct search *s, uint64_t number) { return s->known + (number >> 6); }

static int is_new(struct search *s, uint64_t number)
{
    uint64_t *word = slot_of(s, number), bit = UINT64_C(1) << (number & 63);
    if (*word & bit) return 0;
    *word |= bit;
    return 1;
}

static int room_in_known(struct search *s) { (void)s; return 1; }
#else
static uint64_t mixed(uint64_t x)
{
    x ^= x >> 32; x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32; x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static uint64_t *slot_of(struct search *s, uint64_t number) { return s->known + (mixed(number) & (s->slots - 1)); }

static int is_new(struct search *s, uint64_t number)
{
    uint64_t place = mixed(number) & (s->slots - 1);
    while (s->known[place]) {
        if (s->known[place] == number + 1) return 0;
        place = (place + 1) & (s->slots - 1);
    }
    s->known[place] = number + 1;
    s->remembered++;
    return 1;
}

static int room_in_known(struct search *s)
{
    uint64_t slots = s->slots * 2, before = s->slots, i, *old = s->known;
    if (s->remembered + 1 < s->slots / 4 * 3) return 1;
    if (s->bytes + slots * 8 > s->budget || !(s->known = calloc(slots, 8))) {
        s->known = old;
        s->no_memory = 1;
        return 0;
    }
    s->slots = slots;
    s->remembered = 0;
    for (i = 0; i < before; i++) if (old[i]) is_new(s, old[i] - 1);
    free(old);
    s->bytes += (slots - before) * 8;
    return 1;
}
#endif

static void settle(struct search *s, struct part *p, uint64_t base, DATA data)
{
    if (s->no_memory || !room_in_known(s)) return;
    if (is_new(s, base + data)) add(s, p, data);
}

static void offer(struct search *s, uint64_t place, uint64_t base, DATA data)
{
    struct part *p = s->parts + place;
    DATA *waiting = p->ahead + (p->offered++ % AHEAD), first = *waiting;
    *waiting = data;
#if defined(__GNUC__)
    __builtin_prefetch(slot_of(s, base + data), 1);
#endif
    if (p->offered > AHEAD) settle(s, p, base, first);
}

static void hit(struct search *s, uint64_t watch, uint64_t place, DATA data)
{
    s->hit_place[watch] = place;
    s->hit_data[watch] = data;
    s->is_hit[watch] = 1;
}

@VISITS@

static void settle_all(struct search *s)
{
    uint64_t place, i;
    for (place = 0; place < LOCATIONS; place++) {
        struct part *p = s->parts + place;
        for (i = p->offered > AHEAD ? p->offered - AHEAD : 0; i < p->offered; i++)
            settle(s, p, BASES[place], p->ahead[i % AHEAD]);
        p->offered = 0;
    }
}

void dsa_close(struct search *s)
{
    uint64_t place;
    if (!s) return;
    for (place = 0; place < LOCATIONS; place++) { free(s->parts[place].now); free(s->parts[place].next); }
    free(s->known);
    free(s);
}

struct search *dsa_open(uint64_t budget)
{
    struct search *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->budget = budget;
    s->slots = BITMAP ? NUMBERS / 64 + 1 : 1 << 16;
    s->bytes = sizeof *s + s->slots * 8;
    if (s->bytes <= budget) s->known = calloc(s->slots, 8);
    if (!s->known) { dsa_close(s); return NULL; }
    begin(s);
    settle_all(s);
    if (s->no_memory) { dsa_close(s); return NULL; }
    return s;
}

static int next_layer(struct search *s)
{
    uint64_t place, width = 0;
    for (place = 0; place < LOCATIONS; place++) {
        struct part *p = s->parts + place;
        DATA *data = p->now;
        uint64_t room = p->now_room;
        p->now = p->next; p->now_room = p->next_room; p->width = p->next_width;
        p->next = data; p->next_room = room; p->next_width = 0;
        width += p->width;
    }
    s->at_part = s->at = 0;
    return width != 0;
}

/* Look at up to `most` configurations of this layer. After LAYER_DONE the next layer is complete; the search begins so. */
int dsa_slice(struct search *s, uint64_t most)
{
    while (s->at_part < LOCATIONS && most && !s->no_memory) {
        struct part *p = s->parts + s->at_part;
        uint64_t count = p->width - s->at < most ? p->width - s->at : most;
        if (count && VISITORS[s->at_part]) VISITORS[s->at_part](s, p->now + s->at, count);
        s->count[s->at_part] += count;
        s->at += count;
        most -= count;
        if (s->at == p->width) { s->at_part++; s->at = 0; }
    }
    if (s->at_part < LOCATIONS && !s->no_memory) return SLICE_DONE;
    settle_all(s);
    return s->no_memory ? NO_MEMORY : LAYER_DONE;
}

int dsa_next_layer(struct search *s) { return next_layer(s); }

/* How many configurations were found; how many of them are in the next layer, and at how many locations. */
void dsa_state(const struct search *s, uint64_t *into)
{
    uint64_t place;
    into[0] = s->found;
    into[1] = into[2] = 0;
    for (place = 0; place < LOCATIONS; place++) {
        into[1] += s->parts[place].next_width;
        into[2] += s->parts[place].next_width != 0;
    }
}

/* The next layer: pairs of a location and how many configurations are there, and their data one after the other. */
void dsa_layer(const struct search *s, uint64_t *pairs, DATA *data)
{
    uint64_t place;
    for (place = 0; place < LOCATIONS; place++) {
        const struct part *p = s->parts + place;
        if (!p->next_width) continue;
        *pairs++ = place;
        *pairs++ = p->next_width;
        memcpy(data, p->next, p->next_width * sizeof(DATA));
        data += p->next_width;
    }
}

void dsa_result(const struct search *s, uint64_t *count, uint64_t *taken, uint64_t *place, uint64_t *data, unsigned char *is_hit)
{
    memcpy(count, s->count, sizeof s->count);
    memcpy(taken, s->taken, sizeof s->taken);
    memcpy(place, s->hit_place, sizeof s->hit_place);
    memcpy(data, s->hit_data, sizeof s->hit_data);
    memcpy(is_hit, s->is_hit, sizeof s->is_hit);
}
"""
