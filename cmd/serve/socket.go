package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// maxSocketPath is the longest path that fits into a sockaddr_un with its NUL.
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// resolve makes the path of a socket absolute, and checks that it is usable.
func resolve(path *string, where string) error {
	abs, err := filepath.Abs(*path)
	if err != nil {
		return err
	}
	*path = abs
	reason, folder, other := "", filepath.Dir(abs), " or choose another path"
	if abs == api.DefaultPaths()[0] { // of the value default
		other = fmt.Sprintf(", set $XDG_RUNTIME_DIR to a folder of user %d,%s", os.Geteuid(), other)
	}
	dir, err := os.Stat(folder)
	there, statErr := os.Lstat(abs)
	switch {
	case len(abs) > maxSocketPath:
		reason = fmt.Sprintf("%d bytes long; the kernel takes socket paths of up to %d", len(abs), maxSocketPath)
	case errors.Is(err, fs.ErrNotExist):
		reason = fmt.Sprintf("folder %s does not exist; make it%s", folder, other)
	case err == nil && !dir.IsDir():
		reason = folder + " is not a folder; choose another path"
	case statErr == nil && there.Mode()&fs.ModeSocket == 0:
		reason = "a file that is not a socket is there; remove it or choose another path"
	case unix.Access(folder, unix.W_OK|unix.X_OK) != nil:
		reason = fmt.Sprintf("user %d may not make files in folder %s; make it writable for that user%s", os.Geteuid(), folder, other)
	default:
		return nil
	}
	return &config.Error{Where: where, Value: abs, Reason: reason}
}

// Access says who may connect to a socket.
type Access struct {
	Mode     uint32
	UID, GID int // -1 leaves it
}

// accessOf finds the user and the group that the options name, and whether this process may give them a file.
func accessOf(s *config.SocketPath) (*Access, error) {
	a := &Access{uint32(s.Access.Mode), -1, -1}
	var errs []error
	for _, o := range []struct {
		key, name, database, remedy string
		id                          *int
		number                      func(name string) (string, error)
		owner                       func(id int) (uid, gid int)
	}{
		{"user", s.Access.User, "passwd", "start the server as root or with CAP_CHOWN, or leave it out and give the group", &a.UID, userID, func(id int) (int, int) { return id, -1 }},
		{"group", s.Access.Group, "group", "choose a group of that user, or start the server as root or with CAP_CHOWN", &a.GID, groupID, func(id int) (int, int) { return -1, id }},
	} {
		if o.name == "" {
			continue
		}
		number, err := o.name, error(nil)
		if _, err = strconv.ParseUint(number, 10, 31); err != nil {
			number, err = o.number(o.name)
		}
		reason := ""
		if err == nil {
			*o.id, err = strconv.Atoi(number)
		}
		if err != nil {
			reason = fmt.Sprintf("no such %s; give a name or number of those that getent %s lists", o.key, o.database)
		} else if err := mayGive(o.owner(*o.id)); err != nil {
			reason = fmt.Sprintf("user %d may not give a file to that %s (%v); %s", os.Geteuid(), o.key, err, o.remedy)
		}
		if reason != "" {
			errs = append(errs, &config.Error{Where: s.WhereOf(o.key), Value: o.name, Reason: reason})
		}
	}
	return a, errors.Join(errs...)
}

func userID(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

// userName is the name of a user, or the number of one without.
func userName(uid uint32) string {
	number := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}

func groupID(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}

// mayGive tries whether this process may give a file to a user or group, with a socket that has no name.
func mayGive(uid, gid int) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchown(fd, uid, gid)
}

// apply gives the access to the socket at path, which until then belongs to this user alone. It follows no
// link that another user has put there.
func (a *Access) apply(path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			err = errors.New("another file took its place")
		}
	}
	if err == nil {
		err = unix.Fchownat(fd, "", a.UID, a.GID, unix.AT_EMPTY_PATH)
	}
	if err == nil {
		err = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), a.Mode) // fchmod takes no O_PATH
	}
	if err != nil {
		return fmt.Errorf("socket %s: cannot give it its owner and mode: %w", path, err)
	}
	return nil
}
