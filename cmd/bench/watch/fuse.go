package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

var le = binary.LittleEndian

// silentSize is the size of the file of silentFile.
const silentSize = 1 << 20

// Requests of the kernel to a file system, from linux/fuse.h.
const (
	fuseLookup  = 1
	fuseForget  = 2
	fuseGetattr = 3
	fuseOpen    = 14
	fuseRead    = 15
	fuseInit    = 26
)

// silentFile opens a file whose file system never answers a read. The file system is mounted for
// one thread, and ends with the process.
func silentFile() (fd int, err error) {
	opened := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: only this thread sees the mount
		opened <- func() error {
			dir, err := os.MkdirTemp("", "umbra-silent-")
			if err != nil {
				return err
			}
			defer os.Remove(dir)
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("no mount of its own: %w", err)
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("/dev/fuse: %w", err)
			}
			options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", dev, os.Getuid(), os.Getgid())
			if err := unix.Mount("silent", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
				return fmt.Errorf("cannot mount a file system: %w", err)
			}
			go serveSilent(dev)
			fd, err = unix.Open(dir+"/file", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			return errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
		}()
		select {}
	}()
	select {
	case err = <-opened:
		return fd, err
	case <-time.After(patience):
		return -1, errors.New("the file system does not answer")
	}
}

// serveSilent serves a folder with one file, until the process ends.
func serveSilent(dev int) {
	buf := make([]byte, 1<<20)
	attr := func(node uint64) []byte { // fuse_attr
		a := make([]byte, 88)
		le.PutUint64(a, node)
		mode, links := uint32(unix.S_IFDIR|0o755), uint32(2)
		if node != 1 {
			mode, links = unix.S_IFREG|0o644, 1
			le.PutUint64(a[8:], silentSize)
			le.PutUint64(a[16:], silentSize/512)
		}
		le.PutUint32(a[60:], mode)
		le.PutUint32(a[64:], links)
		le.PutUint32(a[80:], 4096)
		return a
	}
	for {
		n, err := unix.Read(dev, buf)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN || err == unix.ENOENT:
			continue
		case err != nil || n < 40:
			return
		}
		op, id, node := le.Uint32(buf[4:]), le.Uint64(buf[8:]), le.Uint64(buf[16:])
		var body []byte
		errno := int32(0)
		switch op {
		case fuseRead, fuseForget:
			continue // no answer
		case fuseInit: // fuse_init_out
			body = make([]byte, 64)
			le.PutUint32(body, 7)
			le.PutUint32(body[4:], 31)
			le.PutUint32(body[8:], 1<<16)
			le.PutUint32(body[20:], 1<<16)
		case fuseLookup: // fuse_entry_out
			body = make([]byte, 40)
			le.PutUint64(body, 2)
			le.PutUint64(body[16:], 3600)
			le.PutUint64(body[24:], 3600)
			body = append(body, attr(2)...)
		case fuseGetattr: // fuse_attr_out
			body = make([]byte, 16)
			le.PutUint64(body, 3600)
			body = append(body, attr(node)...)
		case fuseOpen: // fuse_open_out
			body = make([]byte, 16)
		default:
			errno = -int32(unix.ENOSYS)
		}
		head := make([]byte, 16)
		le.PutUint32(head, uint32(16+len(body)))
		le.PutUint32(head[4:], uint32(errno))
		le.PutUint64(head[8:], id)
		if _, err := unix.Write(dev, append(head, body...)); err != nil && err != unix.ENOENT {
			return
		}
	}
}
