/* What binding.c and the Go side share. */
#ifndef UMBRA_BINDING_H
#define UMBRA_BINDING_H

#include <stddef.h>
#include <stdint.h>

/* A range of the client's memory. data is NULL without a descriptor. */
struct umbra_range {
	uint64_t addr, size;
	void *data;
	int readable, writable;
};

/* A mappable part of a region. */
struct umbra_area {
	uint64_t offset, size;
};

/* Errors are errno values; 0 is success. */
const char *umbra_missing(void);
const char *umbra_library(void);
int umbra_create(const char *path, uintptr_t owner, void **ctx);
int umbra_region(void *ctx, int index, uint64_t size, int readable, int writable, int memory,
		 int fd, uint64_t offset, const struct umbra_area *area);
int umbra_irqs(void *ctx, int index, uint32_t count);
int umbra_realize(void *ctx);
int umbra_poll_fd(void *ctx);
int umbra_attach(void *ctx);
int umbra_step(void *ctx, int wake, int *woken, int *served);
int umbra_trigger(void *ctx, uint32_t vector);
void umbra_destroy(void *ctx);

#endif
