package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/umbra-gpu/umbra/cmd/api"
)

// One broken file neither stops the repair of other claims, nor makes the node publish less than there is.
func TestMendBrokenFile(t *testing.T) {
	dir := t.TempDir()
	control := filepath.Join(dir, "control.sock")
	l, err := net.Listen("unix", control)
	require.NoError(t, err)
	var added []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var a api.AddRequest
			_ = json.NewDecoder(r.Body).Decode(&a)
			added = append(added, a.GPU)
			_, _ = w.Write([]byte("{}"))
			return
		}
		_ = json.NewEncoder(w).Encode(api.Status{Card: api.Card{Kind: "soft", VRAMFree: 1 << 30, ChannelsFree: 128}})
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })

	p := New(Config{Node: "n", Cards: map[string]string{"card": control}, Chip: "gf100", Sockets: dir, CDI: dir}, nil)
	const uid = types.UID("00000000-0000-0000-0000-000000000001")
	name := "dra-" + string(uid) + "-0"
	require.NoError(t, p.writeCDI(uid, []gpu{{Name: name, Card: "card", Socket: filepath.Join(dir, name, "gpu.sock"), Channels: 4, Options: "name=" + name}}))
	broken := p.cdiPath(strings.Repeat("0", 8))
	require.NoError(t, os.WriteFile(broken, []byte(`{"devices": [{"name"`), 0o600))

	changed, err := p.Mend(t.Context())
	require.ErrorContains(t, err, broken)
	require.Nil(t, changed)
	require.Equal(t, []string{"name=" + name}, added)

	require.NoError(t, os.Remove(broken))
	changed, err = p.Mend(t.Context())
	require.NoError(t, err)
	require.Len(t, changed.Pools["n"].Slices[0].Devices, 1)
}

// TestSilentCard: a server that does not answer keeps nobody from another card's GPUs.
func TestSilentCard(t *testing.T) {
	dir := t.TempDir()
	cards := map[string]string{"card": filepath.Join(dir, "card.sock"), "silent": filepath.Join(dir, "silent.sock")}
	silent, err := net.Listen("unix", cards["silent"]) // accepts, and says nothing
	require.NoError(t, err)
	defer silent.Close()
	l, err := net.Listen("unix", cards["card"])
	require.NoError(t, err)
	const uid = types.UID("00000000-0000-0000-0000-000000000001")
	name := "dra-" + string(uid) + "-0"
	removed := false
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		removed = removed || r.Method == http.MethodDelete
		_ = json.NewEncoder(w).Encode(api.Status{Card: api.Card{Kind: "soft", VRAMFree: 1 << 30, ChannelsFree: 128}, GPUs: []api.GPU{{Name: name}}})
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })

	p := New(Config{Node: "n", Cards: cards, Chip: "gf100", Sockets: dir, CDI: dir}, nil)
	require.NoError(t, p.writeCDI(uid, []gpu{
		{Name: name, Card: "card", Socket: filepath.Join(dir, name, "gpu.sock"), Channels: 4},
		{Name: name + "1", Card: "no more", Socket: filepath.Join(dir, name+"1", "gpu.sock"), Channels: 4},
	}))
	changed, err := p.Mend(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, changed.Pools["n"].Slices[0].Devices, 1, "the other card's is published")
	require.NoError(t, p.unprepare(t.Context(), uid))
	require.True(t, removed)
	require.NoFileExists(t, p.cdiPath(string(uid)))
	require.ErrorIs(t, p.Sweep(t.Context(), nil), context.DeadlineExceeded)

	// What a claim has on another card is removed, with a file and without; the file stays, for what is left.
	for _, gpus := range [][]gpu{{{Name: name + "1", Card: "silent"}, {Name: name, Card: "card"}}, nil} {
		removed = false
		if gpus != nil {
			require.NoError(t, p.writeCDI(uid, gpus))
		}
		require.ErrorContains(t, p.unprepare(t.Context(), uid), "card silent: ")
		require.True(t, removed)
		require.Equal(t, gpus != nil, os.Remove(p.cdiPath(string(uid))) == nil)
	}

	// The kubelet does not wait for Mend, which publishes nothing that it found meanwhile.
	asked := make(chan struct{})
	require.NoError(t, silent.Close())
	silent, err = net.Listen("unix", cards["silent"])
	require.NoError(t, err)
	go func() {
		c, err := silent.Accept()
		close(asked)
		if err == nil {
			<-t.Context().Done()
			c.Close()
		}
	}()
	clear(p.devices)
	mended := make(chan bool)
	go func() {
		changed, _ := p.Mend(t.Context())
		mended <- changed == nil
	}()
	<-asked
	require.NoError(t, p.writeCDI(uid, []gpu{{Name: name, Card: "card"}}))
	ended, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: uid}})
	require.NoError(t, errors.Join(err, ended[uid]))
	require.True(t, <-mended)
}
