package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/vfiouser"
)

// TestAccess: options are held against the users of the machine, and name the key, the value and the remedy.
func TestAccess(t *testing.T) {
	me, mine := os.Geteuid(), os.Getegid()
	for _, c := range []struct {
		options string
		want    Access
		err     string
	}{
		{"", Access{0o600, -1, -1}, ""},
		{fmt.Sprintf(",access.mode=0660,access.user=%d,access.group=%d", me, mine), Access{0o660, me, mine}, ""},
		{",access.user=no-such", Access{}, "gpu name=a: access.user: no-such: no such user; give a name or number of those that getent passwd lists"},
		{",access.group=no-such", Access{}, "gpu name=a: access.group: no-such: no such group; give a name or number of those that getent group lists"},
	} {
		o := config.Default()
		g, err := o.NewGPU("name=a,socket=a,vram=64MiB" + c.options)
		require.NoError(t, err)
		s := g.SocketPath()
		got, err := accessOf(&s)
		if c.err != "" {
			require.EqualError(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, *got)
	}
}

// TestSocketsHaveTheirAccess: a socket has its mode and owner when a GPU is served, and is this user's alone
// without.
func TestSocketsHaveTheirAccess(t *testing.T) {
	s := share(t, newCard(t), Native, vfiouser.Options{}, aggregator.Options{})
	for name, c := range map[string]struct {
		access *Access
		mode   os.FileMode
	}{
		"plain": {nil, 0o600},
		"open":  {&Access{0o666, os.Geteuid(), os.Getegid()}, 0o666},
	} {
		path := filepath.Join(s.dir, name)
		_, err := s.Add(GPUConfig{Share: aggregator.GuestConfig{Name: name, VRAM: testedVRAM, Channels: 1}, Socket: path, Access: c.access})
		require.NoError(t, err)
		st, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, c.mode, st.Mode().Perm())
		require.EqualValues(t, os.Geteuid(), st.Sys().(*syscall.Stat_t).Uid)
	}
}
