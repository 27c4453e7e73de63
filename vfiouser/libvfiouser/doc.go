// Package libvfiouser serves a vfiouser.Device with the C library libvfio-user in place of our
// own server: for users who know that library or must match its behaviour.
//
// It is built with the tag libvfiouser only, against the headers and the library that
// CGO_CFLAGS and CGO_LDFLAGS name. Without the tag, New returns an error that explains the
// build, and the package needs no C compiler.
//
// # What it owns
//
// Transport owns one library context: its listening socket, the client's connection, and the
// library's mappings of the client's memory. The device sees them through a vfiouser.Host, as
// it does with the native server.
//
// # Goroutines and threads
//
// The library's context may be used by one thread at a time, and a blocking call of it never
// returns. So ListenAndServe stays on one locked OS thread, which alone calls the library: it
// polls the client's socket and an eventfd, and serves one message at a time. All calls of the
// Device come from this thread, through one C function for each region index, because the
// library's callbacks have no argument of the user's.
//
// Triggers come from any goroutine. They are recorded in a table, the eventfd wakes the thread,
// and the thread signals them between two messages. So a trigger costs a thread's wake-up more
// than with the native server, and never waits. The caller copies mapped memory itself; DMA by
// message is refused (vfiouser.ErrNoMessageDMA).
//
// # Locks, in order
//
//  1. Transport.mu   life: path, context, whether it is closing
//  2. vfiouser's Memory lock
//  3. link.mu        interrupt vectors
//
// # Quiesce
//
// The library asks the device to quiesce before it changes the DMA map or resets. Removing a
// range from Memory waits for copies, and its watchers wait until the device no longer uses it.
// So the answer is always "quiesced", immediately, and the wait is in the unregister callback.
//
// # What the library lacks
//
// See Lacks, which umbra serve prints.
package libvfiouser

import (
	"errors"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// ErrNotBuilt means that the binding is not in this program.
var ErrNotBuilt = errors.New("this program was built without libvfio-user: run \"make libvfio-user\", then " +
	"\"make build-libvfio-user\"; or build with -tags libvfiouser, with CGO_CFLAGS and CGO_LDFLAGS naming the library's headers and the library")

// offered is the one part of a region that a client may map: the first of the largest. The
// library as of 2022 sends a descriptor for each part, and QEMU rejects a device whose reply has
// more than one. The other parts are trapped.
func offered(parts []vfiouser.SparseArea) vfiouser.SparseArea {
	best := parts[0]
	for _, a := range parts[1:] {
		if a.Size > best.Size {
			best = a
		}
	}
	return best
}

// Lacks returns the features of the native server that this transport lacks, a phrase each.
func Lacks() []string {
	return []string{
		"REGION_WRITE_MULTI: not known; each posted write is a message",
		"batches: one message is read, served and answered at a time",
		"resample: an eventfd that unmasks is closed unread; KVM's INTx needs it",
		"masks by eventfd: only messages mask and unmask",
		"room in eventfds: one that is full and blocking blocks its client's thread until it is read",
		"demultiplexed DMA, and any DMA by message: the library as of 2022 sends it to the wrong address; memory must be mapped",
		"split messages: a header that arrives in two parts ends the connection, a body in two parts is an error",
		"descriptors that come with half a header: never closed",
		"ERR and REQ interrupts: the library takes their eventfd for vector 0, so they are not offered",
		"INTx, MSI and MSI-X: one set of eventfds for all; interrupt flags other than EVENTFD are not reported",
		"mappable parts: the largest of each region only; the library as of 2022 sends a descriptor for every part, and QEMU takes one",
		"regions and interrupts: described once, before the first client, not for each client",
		"regions of 4 GiB and more: sizes are held in 32 bits",
		"DMA ranges: 16 at a time in older revisions; each takes a mapping of the process, and limits of them are the library's own; an overlap is EINVAL; only exact ranges are unmapped, so a guest must not put the GPU behind an IOMMU",
		"migration and dirty-page logging: not bound",
		"a second client: waits in the socket's queue without an answer",
		"inherited sockets: the library makes its own",
	}
}
