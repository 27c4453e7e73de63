//go:build libvfiouser

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#if !__has_include(<libvfio-user.h>)
#error "libvfio-user.h not found: CGO_CFLAGS must name the folder of libvfio-user's headers (make libvfio-user prints it)"
#else
#include <libvfio-user.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#ifndef LIB_VFIO_USER_MAJOR
#error "libvfio-user.h was found and names no LIB_VFIO_USER_MAJOR: the header of libvfio-user is needed, of major version 0"
#else
_Static_assert(LIB_VFIO_USER_MAJOR == 0,
	       "libvfio-user.h was found of major version " TEXT(LIB_VFIO_USER_MAJOR) "; libvfio-user of major version 0 is needed");
#endif

#include "binding.h"
#include "_cgo_export.h"

/*
 * The library promises no ABI. A header that declares a function otherwise than it is used here
 * stops the build at its row, where the compiler tells both; a library that does not have one
 * stops the program at its start.
 */
#define NEEDED(row) \
	row(vfu_ctx_t *, vfu_create_ctx, (vfu_trans_t, const char *, int, void *, vfu_dev_type_t)) \
	row(int, vfu_realize_ctx, (vfu_ctx_t *)) \
	row(int, vfu_attach_ctx, (vfu_ctx_t *)) \
	row(int, vfu_get_poll_fd, (vfu_ctx_t *)) \
	row(int, vfu_run_ctx, (vfu_ctx_t *)) \
	row(void, vfu_destroy_ctx, (vfu_ctx_t *)) \
	row(void *, vfu_get_private, (vfu_ctx_t *)) \
	row(int, vfu_setup_region, (vfu_ctx_t *, int, size_t, vfu_region_access_cb_t *, int, struct iovec *, uint32_t, int, uint64_t)) \
	row(int, vfu_setup_device_reset_cb, (vfu_ctx_t *, vfu_reset_cb_t *)) \
	row(void, vfu_setup_device_quiesce_cb, (vfu_ctx_t *, vfu_device_quiesce_cb_t *)) \
	row(int, vfu_setup_device_dma, (vfu_ctx_t *, vfu_dma_register_cb_t *, vfu_dma_unregister_cb_t *)) \
	row(int, vfu_setup_device_nr_irqs, (vfu_ctx_t *, enum vfu_dev_irq_type, uint32_t)) \
	row(int, vfu_setup_irq_state_callback, (vfu_ctx_t *, enum vfu_dev_irq_type, vfu_dev_irq_state_cb_t *)) \
	row(int, vfu_irq_trigger, (vfu_ctx_t *, uint32_t))

#define CHECK(result, name, args) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), result (*) args), \
		       "libvfio-user.h declares " #name " otherwise than this binding uses it, another ABI; needed is: " #result " " #name #args);
NEEDED(CHECK)

#define WEAK(result, name, args) extern result name args __attribute__((weak));
NEEDED(WEAK)

/* umbra_library is the file that the library is in, NULL if that cannot be told. */
const char *umbra_library(void)
{
	Dl_info info;
	void *p;

#define FIND(result, name, args) \
	p = dlsym(RTLD_DEFAULT, #name); \
	if (p != NULL && dladdr(p, &info) != 0) \
		return info.dli_fname;
	NEEDED(FIND)
	return NULL;
}

/* umbra_missing names the functions that the library does not have, NULL if it has all. */
const char *umbra_missing(void)
{
	static char names[1024];

	names[0] = 0;
#define MISSING(result, name, args) \
	if (&name == NULL) \
		strncat(names, " " #name, sizeof(names) - strlen(names) - 1);
	NEEDED(MISSING)
	return names[0] ? names + 1 : NULL;
}

static uintptr_t owner_of(vfu_ctx_t *ctx) { return (uintptr_t)vfu_get_private(ctx); }

/* fail gives an errno to the library's way of errors. */
static int fail(int err)
{
	if (err == 0)
		return 0;
	errno = err;
	return -1;
}

static ssize_t access_region(vfu_ctx_t *ctx, int index, char *buf, size_t count, loff_t offset, bool write)
{
	int err = umbraAccess(owner_of(ctx), index, buf, count, (uint64_t)offset, write);

	return err ? fail(err) : (ssize_t)count;
}

#define REGION(n) \
	static ssize_t access_##n(vfu_ctx_t *ctx, char *buf, size_t count, loff_t offset, bool write) \
	{ \
		return access_region(ctx, n, buf, count, offset, write); \
	}
REGION(0) REGION(1) REGION(2) REGION(3) REGION(4) REGION(5) REGION(6) REGION(7) REGION(8)

static vfu_region_access_cb_t *const accesses[] = {
	access_0, access_1, access_2, access_3, access_4, access_5, access_6, access_7, access_8,
};

static int on_reset(vfu_ctx_t *ctx, vfu_reset_type_t type)
{
	if (type == VFU_RESET_LOST_CONN) {
		umbraLost(owner_of(ctx));
		return 0;
	}
	return fail(umbraReset(owner_of(ctx)));
}

static int on_quiesce(vfu_ctx_t *ctx)
{
	(void)ctx;
	return 0;
}

static struct umbra_range range_of(const vfu_dma_info_t *info)
{
	return (struct umbra_range){
		.addr = (uint64_t)(uintptr_t)info->iova.iov_base,
		.size = info->iova.iov_len,
		.data = info->vaddr,
		.readable = (info->prot & PROT_READ) != 0,
		.writable = (info->prot & PROT_WRITE) != 0,
	};
}

static void on_register(vfu_ctx_t *ctx, vfu_dma_info_t *info)
{
	struct umbra_range r = range_of(info);

	umbraProvide(owner_of(ctx), &r);
}

static void on_unregister(vfu_ctx_t *ctx, vfu_dma_info_t *info)
{
	struct umbra_range r = range_of(info);

	umbraWithdraw(owner_of(ctx), &r);
}

#define STATE(n) \
	static void irq_state_##n(vfu_ctx_t *ctx, uint32_t start, uint32_t count, bool mask) \
	{ \
		umbraMask(owner_of(ctx), n, start, count, mask); \
	}
STATE(0) STATE(1) STATE(2)

static vfu_dev_irq_state_cb_t *const irq_states[] = { irq_state_0, irq_state_1, irq_state_2 };

int umbra_create(const char *path, uintptr_t owner, void **out)
{
	vfu_ctx_t *ctx = vfu_create_ctx(VFU_TRANS_SOCK, path, LIBVFIO_USER_FLAG_ATTACH_NB, (void *)owner, VFU_DEV_TYPE_PCI);

	if (ctx == NULL)
		return errno ? errno : EIO;
	vfu_setup_device_quiesce_cb(ctx, on_quiesce);
	if (vfu_setup_device_reset_cb(ctx, on_reset) < 0 || vfu_setup_device_dma(ctx, on_register, on_unregister) < 0) {
		int err = errno;

		vfu_destroy_ctx(ctx);
		return err;
	}
	*out = ctx;
	return 0;
}

int umbra_region(void *ctx, int index, uint64_t size, int readable, int writable, int memory,
		 int fd, uint64_t offset, const struct umbra_area *area)
{
	int flags = (readable ? VFU_REGION_FLAG_READ : 0) | (writable ? VFU_REGION_FLAG_WRITE : 0) |
		    (memory ? VFU_REGION_FLAG_MEM : 0);
	struct iovec iov;

	if (index == VFU_PCI_DEV_CFG_REGION_IDX)
		flags |= VFU_REGION_FLAG_ALWAYS_CB;
	if (area != NULL) {
		iov.iov_base = (void *)(uintptr_t)area->offset;
		iov.iov_len = area->size;
	}
	return vfu_setup_region(ctx, index, size, accesses[index], flags, area ? &iov : NULL, area ? 1 : 0, fd, offset) < 0 ? errno : 0;
}

int umbra_irqs(void *ctx, int index, uint32_t count)
{
	if (vfu_setup_device_nr_irqs(ctx, index, count) < 0)
		return errno;
	if (count > 0 && index <= VFU_DEV_MSIX_IRQ && vfu_setup_irq_state_callback(ctx, index, irq_states[index]) < 0)
		return errno;
	return 0;
}

int umbra_realize(void *ctx) { return vfu_realize_ctx(ctx) < 0 ? errno : 0; }

int umbra_poll_fd(void *ctx) { return vfu_get_poll_fd(ctx); }

int umbra_attach(void *ctx) { return vfu_attach_ctx(ctx) < 0 ? errno : 0; }

/*
 * umbra_step waits for the context's descriptor and for wake, and serves one message if there is
 * one. The context has a client.
 */
int umbra_step(void *ctx, int wake, int *woken, int *served)
{
	struct pollfd p[2] = {
		{ .fd = vfu_get_poll_fd(ctx), .events = POLLIN },
		{ .fd = wake, .events = POLLIN },
	};

	if (poll(p, 2, -1) < 0)
		return errno == EINTR ? 0 : errno;
	*woken = p[1].revents != 0;
	*served = p[0].revents != 0;
	if (!*served)
		return 0;
	return vfu_run_ctx(ctx) < 0 ? errno : 0;
}

int umbra_trigger(void *ctx, uint32_t vector) { return vfu_irq_trigger(ctx, vector) < 0 ? errno : 0; }

void umbra_destroy(void *ctx) { vfu_destroy_ctx(ctx); }

#endif /* libvfio-user.h was found */
