package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// Make makes a transport of a device.
type Make func(vfiouser.Device, vfiouser.Options) (vfiouser.Transport, error)

// Names of the transports.
const (
	TransportNative  = "native"
	TransportLibrary = "libvfio-user"
)

// Native makes the server of package vfiouser.
func Native(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
	return vfiouser.NewServer(d, o)
}

// TransportNamed returns how a transport is made, and what it lacks that the native
// one has. It fails for a transport that is not built into this program.
func TransportNamed(name string) (Make, []string, error) {
	switch {
	case name != TransportLibrary:
		return Native, nil, nil
	case !libvfiouser.Built:
		return nil, nil, libvfiouser.ErrNotBuilt
	}
	return libvfiouser.New, libvfiouser.Lacks(), nil
}

// maxSocketPath is the longest path that fits into a sockaddr_un with its NUL.
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// resolve makes the path of a socket absolute, and checks that it is usable.
func resolve(path *string, where string) error {
	abs, err := filepath.Abs(*path)
	if err != nil {
		return err
	}
	*path = abs
	reason, folder := "", filepath.Dir(abs)
	dir, err := os.Stat(folder)
	there, statErr := os.Lstat(abs)
	switch {
	case len(abs) > maxSocketPath:
		reason = fmt.Sprintf("%d bytes long; the kernel takes socket paths of up to %d", len(abs), maxSocketPath)
	case errors.Is(err, fs.ErrNotExist):
		reason = fmt.Sprintf("folder %s does not exist; make it or choose another path", folder)
	case err == nil && !dir.IsDir():
		reason = folder + " is not a folder; choose another path"
	case statErr == nil && there.Mode()&fs.ModeSocket == 0:
		reason = "a file that is not a socket is there; remove it or choose another path"
	default:
		return nil
	}
	return &config.Error{Where: where, Value: abs, Reason: reason}
}
