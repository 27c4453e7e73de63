package vfiouser

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// files are the mappings of one client's files. Ranges share a mapping that covers them: a guest
// gives one memfd many times, with other offsets.
type files struct {
	list  []*fileMap
	bytes uint64 // of all mappings
	kept  []*keptFile

	holes  *holes             // of the server; nil for other transports
	munmap func([]byte) error // nil is the system's; tests look at what is left for it
}

// fileMap is one mapping of whole blocks of a file.
type fileMap struct {
	of   fileID
	prot int
	base uint64 // in the file
	data []byte
	refs int
	kept *keptFile // nil if the file is not kept open

	watched bool // by holes
}

// keptFile is a file of the client that stays open for devices that map it themselves.
type keptFile struct {
	*os.File
	of       fileID
	writable bool
	maps     int
}

// mostKept bounds the open files of one client. QEMU shares a file for each memory backend.
const mostKept = 16

type fileID struct{ dev, ino uint64 }

// clientFile is what the server knows of a descriptor before it maps it.
type clientFile struct {
	id      fileID
	regular bool
	size    uint64
	memory  bool
	block   uint64 // the system maps whole ones: a page, or a huge page

	writable bool // by the descriptor
}

// inMemory reports whether a descriptor is a memfd, or a file of tmpfs or hugetlbfs: the files with
// seals. It never waits. Every other system call on the descriptor may: fstat, fstatfs and close
// of a file in FUSE or NFS wait for a server of the client's choice.
func inMemory(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil
}

// inspect checks that q's descriptor is guest memory, and that its rights and its length cover the
// range. Memory past the end of a file would fault at the first access.
func inspect(q mapRequest, o *Options) (f clientFile, err error) {
	if q.fd < 0 {
		return f, nil
	}
	memory := inMemory(q.fd)
	if !memory && !o.AnyDMAFile {
		return f, refusal(DMAFiles)
	}
	if !memory && q.fileIO {
		return f, unix.EOPNOTSUPP
	}
	var st unix.Stat_t
	if err := unix.Fstat(q.fd, &st); err != nil {
		return f, err
	}
	fl, err := unix.FcntlInt(uintptr(q.fd), unix.F_GETFL, 0)
	if err != nil {
		return f, err
	}
	if q.prot&unix.PROT_WRITE != 0 && fl&unix.O_ACCMODE == unix.O_RDONLY || fl&unix.O_ACCMODE == unix.O_WRONLY {
		return f, unix.EACCES
	}
	f = clientFile{
		id: fileID{uint64(st.Dev), st.Ino}, memory: memory, regular: st.Mode&unix.S_IFMT == unix.S_IFREG, size: uint64(st.Size), block: pageSize,
		writable: fl&unix.O_ACCMODE == unix.O_RDWR,
	}
	if f.regular && (q.offset > f.size || q.size > f.size-q.offset) {
		return f, unix.EINVAL
	}
	if b := uint64(st.Blksize); b > pageSize && b&(b-1) == 0 && memory {
		f.block = b
	}
	return f, nil
}

// open returns a mapping that covers q: one that exists, or a new one of just the range. A client
// that has taken half of its mappings gets the whole file mapped where it may, so that a guest
// behind an IOMMU, whose ranges are thousands of pages, needs few.
func (l *files) open(q mapRequest, of clientFile, o *Options) (*fileMap, error) {
	for _, f := range l.list {
		if f.covers(q, of) {
			f.refs++
			return f, nil
		}
	}
	if len(l.list) >= o.MaxDMAMappings {
		return nil, refusal(DMAMappings)
	}
	if of.regular && len(l.list) >= o.MaxDMAMappings/2 {
		if f, err := l.mmap(q, of, 0, of.size, o); err == nil {
			return f, nil
		}
	}
	return l.mmap(q, of, q.offset, q.size, o)
}

func (f *fileMap) covers(q mapRequest, of clientFile) bool {
	return of.regular && f.of == of.id && (f.prot == q.prot || f.prot == unix.PROT_READ|unix.PROT_WRITE) &&
		q.offset >= f.base && q.offset-f.base+q.size <= uint64(len(f.data))
}

// mmap maps the blocks of a file that hold size bytes at offset.
func (l *files) mmap(q mapRequest, of clientFile, offset, size uint64, o *Options) (*fileMap, error) {
	base := offset &^ (of.block - 1)
	n := (offset - base + size + of.block - 1) &^ (of.block - 1)
	if n > o.MaxDMAMemory-min(l.bytes, o.MaxDMAMemory) {
		return nil, refusal(DMAMemory)
	}
	data, err := unix.Mmap(q.fd, int64(base), int(n), q.prot, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	f := &fileMap{of: of.id, prot: q.prot, base: base, data: data, refs: 1}
	if of.memory {
		if f.watched, err = l.holes.watch(data); err != nil {
			return nil, errors.Join(err, unix.Munmap(data))
		}
	}
	f.kept = l.keep(q.fd, of)
	l.list = append(l.list, f)
	l.bytes += n
	return f, nil
}

// keep returns the file of a new mapping, open until letGo, or nil. Files outside memory are not kept:
// their close may wait.
func (l *files) keep(fd int, of clientFile) *keptFile {
	for _, k := range l.kept {
		if k.of == of.id && k.writable == of.writable {
			k.maps++
			return k
		}
	}
	if !of.memory || len(l.kept) >= mostKept {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	k := &keptFile{os.NewFile(uintptr(fd), "guest memory"), of.id, of.writable, 1}
	l.kept = append(l.kept, k)
	return k
}

func (l *files) letGo(k *keptFile) {
	if k == nil {
		return
	}
	if k.maps--; k.maps == 0 {
		_ = k.Close() // nothing was written by it
		i := slices.Index(l.kept, k)
		l.kept = slices.Delete(l.kept, i, i+1)
	}
}

// close ends r's use of its file. What the system does not unmap stays counted.
func (l *files) close(r *mapping) {
	f := r.file
	if f == nil {
		return
	}
	r.file, r.data = nil, nil
	if f.refs--; f.refs > 0 {
		return
	}
	l.letGo(f.kept)
	n := uint64(len(f.data))
	if err := l.unmap(f); err != nil {
		panic(fmt.Sprintf("vfiouser: munmap of %#x bytes of our own mapping: %v", n, os.NewSyscallError("munmap", err)))
	}
	l.bytes -= n
	i := slices.Index(l.list, f)
	l.list = slices.Delete(l.list, i, i+1)
}

// unmapPiece is how much of a mapping is emptied at once: some 0.2 ms.
const unmapPiece = 1 << 20

// unmap gives back the pages of a mapping in pieces and then the mapping. munmap frees pages, 0.3 s
// a GiB, with the lock of this process's addresses, for which the maps and unmaps of all clients
// wait. madvise takes that of the mapping alone, unless the mapping is watched or Linux is older than
// 6.17; then it lets the others in between two pieces. Errors are the system's business: munmap frees
// what is left, such as huge pages, which are few.
func (l *files) unmap(f *fileMap) error {
	if f.watched {
		_ = l.holes.faults.unwatch(f.data)
	}
	for left := f.data; len(left) > 0; left = left[min(len(left), unmapPiece):] {
		_ = unix.Madvise(left[:min(len(left), unmapPiece)], unix.MADV_DONTNEED)
	}
	if l.munmap != nil {
		return l.munmap(f.data)
	}
	return unix.Munmap(f.data)
}
