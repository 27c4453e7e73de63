//go:build libvfiouser

package libvfiouser

/*
#include "binding.h"
*/
import "C"

import (
	"log/slog"
	"runtime/cgo"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser"
)

// The functions that binding.c calls. They return 0 or an errno, and let no panic through.

func transportOf(owner C.uintptr_t) *Transport { return cgo.Handle(owner).Value().(*Transport) }

//export umbraAccess
func umbraAccess(owner C.uintptr_t, index C.int, buf *C.char, count C.size_t, offset C.uint64_t, write C._Bool) C.int {
	t := transportOf(owner)
	r := t.regions[index]
	need := vfiouser.RegionRead
	if write {
		need = vfiouser.RegionWrite
	}
	if r.Flags&need == 0 { // the library does not check
		return C.int(unix.EINVAL)
	}
	p := unsafe.Slice((*byte)(unsafe.Pointer(buf)), int(count))
	var errno syscall.Errno
	if write {
		errno = t.errno("WriteRegion", func() error { return t.dev.WriteRegion(int(index), uint64(offset), p) })
	} else {
		errno = t.errno("ReadRegion", func() error { return t.dev.ReadRegion(int(index), uint64(offset), p) })
	}
	return C.int(errno)
}

//export umbraReset
func umbraReset(owner C.uintptr_t) C.int {
	t := transportOf(owner)
	errno := t.errno("Reset", t.dev.Reset)
	if errno == 0 && t.link != nil {
		t.link.clearAll()
	}
	return C.int(errno)
}

//export umbraLost
func umbraLost(owner C.uintptr_t) { transportOf(owner).lost() }

//export umbraProvide
func umbraProvide(owner C.uintptr_t, r *C.struct_umbra_range) {
	t := transportOf(owner)
	if t.link == nil {
		return
	}
	var data []byte
	if r.data != nil {
		data = unsafe.Slice((*byte)(r.data), int(r.size))
	}
	m := vfiouser.MemoryRange{Addr: uint64(r.addr), Size: uint64(r.size), Read: r.readable != 0, Write: r.writable != 0}
	t.contain("memory watcher", func() {
		// The library maps the same range again, and reports it again.
		if err := t.link.mem.Provide(m, data); err != nil && err != unix.EEXIST {
			t.log.Warn("the device cannot reach a range of the client's memory; the client must map a valid address and size", slog.Any("error", err))
		}
	})
}

//export umbraWithdraw
func umbraWithdraw(owner C.uintptr_t, r *C.struct_umbra_range) {
	t := transportOf(owner)
	if t.link == nil {
		return
	}
	t.contain("memory watcher", func() { _ = t.link.mem.Withdraw(uint64(r.addr), uint64(r.size)) }) // EINVAL: Provide refused the range
}

//export umbraMask
func umbraMask(owner C.uintptr_t, index C.int, start, count C.uint32_t, masked C._Bool) {
	t := transportOf(owner)
	if t.link == nil {
		return
	}
	t.contain("IRQ observer", func() { t.link.mask(int(index), int(start), int(count), bool(masked)) })
}
