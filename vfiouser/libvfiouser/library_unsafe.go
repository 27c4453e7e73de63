//go:build libvfiouser

package libvfiouser

/*
// The references are weak, to detect missing functions: the linker must keep the library.
#cgo LDFLAGS: -Wl,--no-as-needed -lvfio-user -ldl
#include <stdlib.h>
#include "binding.h"
*/
import "C"

import (
	"debug/elf"
	"fmt"
	"os"
	"runtime/cgo"
	"sync"
	"syscall"
	"unsafe"

	"github.com/umbra-gpu/umbra/vfiouser"
)

type library struct {
	ctx   unsafe.Pointer
	owner cgo.Handle // of the Transport, for the callbacks
	files []*os.File // of regions, which the library names by number
}

// soname is what the library calls itself, as long as it is this one.
const soname = "libvfio-user.so.0"

// check refuses a library that this program cannot use, with what was found. The library does not
// change while the program runs.
var check = sync.OnceValue(func() error {
	path := C.GoString(C.umbra_library())
	found := "the libvfio-user that this program runs with"
	if path != "" {
		found += ", " + path + ","
	}
	if names := C.GoString(C.umbra_missing()); names != "" {
		return fmt.Errorf("libvfiouser: %s lacks %s; one that has them is needed, as \"make libvfio-user\" builds", found, names)
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil // it has all functions, and its file may not be for this user to read
	}
	defer f.Close()
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil || len(names) == 0 { // linked into the program
		return nil
	}
	if names[0] != soname {
		return fmt.Errorf("libvfiouser: %s is %s, another ABI; %s is needed, as \"make libvfio-user\" builds", found, names[0], soname)
	}
	return nil
})

func errOf(e C.int) error {
	if e == 0 {
		return nil
	}
	return syscall.Errno(e)
}

func create(path string, t *Transport) (*library, error) {
	l := &library{owner: cgo.NewHandle(t)}
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if err := errOf(C.umbra_create(p, C.uintptr_t(l.owner), &l.ctx)); err != nil {
		l.owner.Delete()
		return nil, err
	}
	return l, nil
}

func (l *library) destroy() {
	C.umbra_destroy(l.ctx)
	l.owner.Delete()
	for _, f := range l.files {
		f.Close()
	}
}

// describe registers dev's regions and interrupts with the library, and makes the context
// ready.
func (l *library) describe(dev vfiouser.Device) error {
	for i, r := range dev.Regions() {
		if r.Size == 0 {
			continue
		}
		if err := l.region(i, &r); err != nil {
			return fmt.Errorf("region %d of %#x bytes: %w", i, r.Size, err)
		}
	}
	irqs := make([]vfiouser.IRQ, vfiouser.NumIRQs)
	copy(irqs, dev.IRQs())
	irqs[vfiouser.IRQErr].Count, irqs[vfiouser.IRQReq].Count = 0, 0
	for i, q := range irqs {
		if err := errOf(C.umbra_irqs(l.ctx, C.int(i), C.uint32_t(q.Count))); err != nil {
			return fmt.Errorf("interrupt index %d of %d vectors: %w", i, q.Count, err)
		}
	}
	return errOf(C.umbra_realize(l.ctx))
}

func (l *library) region(i int, r *vfiouser.Region) error {
	fd := C.int(-1)
	var area *C.struct_umbra_area // of all of the region, if nil
	if r.Flags&vfiouser.RegionMmap != 0 {
		n, err := l.descriptor(r.File)
		if err != nil {
			return err
		}
		fd = n
		if len(r.Areas) > 0 {
			a := offered(r.Areas)
			area = &C.struct_umbra_area{offset: C.uint64_t(a.Offset), size: C.uint64_t(a.Size)}
		}
	}
	return errOf(C.umbra_region(l.ctx, C.int(i), C.uint64_t(r.Size), cBool(r.Flags&vfiouser.RegionRead != 0),
		cBool(r.Flags&vfiouser.RegionWrite != 0), cBool(i <= vfiouser.RegionROM), fd, C.uint64_t(r.MapOffset), area))
}

// descriptor is a duplicate of f's that lives as long as the context: the library keeps the
// number, and f is the device's to close.
func (l *library) descriptor(f *os.File) (C.int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if cerr := raw.Control(func(p uintptr) { fd, err = syscall.Dup(int(p)) }); cerr != nil {
		return -1, cerr
	}
	if err != nil {
		return -1, os.NewSyscallError("dup", err)
	}
	syscall.CloseOnExec(fd)
	l.files = append(l.files, os.NewFile(uintptr(fd), f.Name()))
	return C.int(fd), nil
}

func cBool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func (l *library) pollFD() int { return int(C.umbra_poll_fd(l.ctx)) }

func (l *library) attach() error { return errOf(C.umbra_attach(l.ctx)) }

func (l *library) step(wake int) (woken, served bool, err error) {
	var w, s C.int
	err = errOf(C.umbra_step(l.ctx, C.int(wake), &w, &s))
	return w != 0, s != 0, err
}

func (l *library) trigger(vec int) error { return errOf(C.umbra_trigger(l.ctx, C.uint32_t(vec))) }
