package conformance

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/driver"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

type maker = serve.Make

// transports are what a device can be served by in this build.
var transports = []struct {
	name string
	make maker
	skip string
}{
	{name: "native", make: serve.Native},
	{name: "libvfio-user", make: libvfiouser.New, skip: map[bool]string{false: libvfiouser.ErrNotBuilt.Error()}[libvfiouser.Built]},
}

func eachTransport(t *testing.T, test func(t *testing.T, by maker)) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			if tr.skip != "" {
				t.Skip(tr.skip)
			}
			test(t, tr.make)
		})
	}
}

// serveAt serves a device until the test ends, and returns the transport and its
// socket, which takes clients.
func serveAt(t *testing.T, by maker, d vfiouser.Device) (vfiouser.Transport, string) {
	t.Helper()
	listening := make(chan struct{})
	tr, err := by(d, vfiouser.Options{Listening: func() { close(listening) }})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- tr.ListenAndServe(ctx, path) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-served:
			require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, vfiouser.ErrServerClosed), "%v", err)
		case <-time.After(time.Minute):
			t.Error("the server does not end")
		}
		require.NoError(t, tr.Close())
		require.NoFileExists(t, path)
	})
	select {
	case <-listening:
	case err := <-served:
		served <- err
		t.Fatal(err)
	}
	return tr, path
}

// suite runs the suite; a case that fails fails the test. Every finding is in
// the log, the choices apart.
func suite(t *testing.T, path string) (found map[string]string) {
	t.Helper()
	found = map[string]string{}
	var choices, absent []conformance.Result
	n := map[conformance.Outcome]int{}
	err := conformance.Run(t.Context(), conformance.Options{Dial: conformance.DialPath(path)}, func(r conformance.Result) {
		n[r.Outcome]++
		found[r.Family+"/"+r.Name] = r.Found
		assert.NotContains(t, r.Found, "\n", "%s: %s: one line is due", r.Family, r.Name)
		assert.NotEmpty(t, r.Found, "%s: %s", r.Family, r.Name)
		switch {
		case r.Outcome == conformance.Failed:
			t.Errorf("%s: %s (%s): %s", r.Family, r.Name, r.Mark, r.Found)
		case r.Outcome == conformance.NotApplicable:
			absent = append(absent, r)
		case r.Mark == conformance.Choice:
			choices = append(choices, r)
		}
	})
	require.NoError(t, err)
	for _, r := range choices {
		t.Logf("server's choice: %s: %s: %s", r.Family, r.Name, r.Found)
	}
	for _, r := range absent {
		t.Logf("not applicable: %s: %s: %s", r.Family, r.Name, r.Found)
	}
	t.Logf("%d passed, %d of them choices; %d failed, %d not applicable", n[conformance.Passed], len(choices), n[conformance.Failed], n[conformance.NotApplicable])
	require.Greater(t, n[conformance.Passed], 140)
	return found
}

// TestSuiteOfEverything: the whole suite on both transports, with the device that has something of
// everything. Our own server does not take what it need not.
func TestSuiteOfEverything(t *testing.T) {
	eachTransport(t, func(t *testing.T, by maker) {
		tr, path := serveAt(t, by, newEverything(t))
		found := suite(t, path)
		require.Zero(t, tr.Stats().Panics)
		if _, native := tr.(*vfiouser.Server); !native {
			return
		}
		for at, want := range strict {
			assert.Equal(t, want, found[at], at)
		}
	})
}

// strict is what our own server does in cases where a server may choose.
var strict = map[string]string{
	"negotiation/JSON not ended":            "EINVAL",
	"negotiation/JSON broken":               "EINVAL",
	"negotiation/capabilities a list":       "EINVAL",
	"negotiation/max_msg_fds a text":        "EINVAL",
	"negotiation/max_msg_fds below 0":       "EINVAL",
	"negotiation/max_msg_fds too large":     "EINVAL",
	"negotiation/max_data_xfer_size a list": "EINVAL",
	"negotiation/descriptor on VERSION":     "EINVAL",
	"negotiation/VERSION again":             "EINVAL",
	"requests/a reply to nothing":           "EINVAL",
	"region info/descriptors of a region":   "1 for 2 areas", // QEMU takes one
	"set irqs/a pipe for an eventfd":        "EINVAL",
	"set irqs/unknown flag":                 "EINVAL",
	"set irqs/range that wraps":             "EINVAL",
	"set irqs/detach in the middle":         "it alone is not signalled",
	"dma map/the same range again":          "a bare reply",
	"dma map/size 0":                        "EINVAL",
	"dma map/range that wraps":              "EINVAL",
	"dma map/16 TiB":                        "ENOSPC",
	"dma map/offset within a page":          "EINVAL",
	"dma map/past the end of the file":      "EINVAL",
	"dma map/two descriptors":               "EINVAL",
	"dma unmap/dirty bitmap and all":        "EINVAL",
	"dma unmap/dirty bitmap":                "EINVAL",
	"io fds/argsz 2 MiB":                    "EINVAL",
	"region access/count 0":                 "a bare reply",
	"region access/write of nothing":        "a bare reply",
	"pipelining/header byte by byte":        "a reply of 16 bytes",
	"pipelining/payload in two":             "a reply of 16 bytes",
	"descriptors/with half a header":        "closed",
	"disconnect/a second client":            "the connection closed",
	"set irqs/mask, fire, unmask":           "held, and signalled when unmasked",
}

func TestSuiteOfTheCard(t *testing.T) {
	eachTransport(t, func(t *testing.T, by maker) {
		card, err := soft.New(soft.Config{VRAM: soft.MinVRAM})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, card.Close()) })
		_, path := serveAt(t, by, serve.NewPassThrough(card, passthrough.Config{}))
		suite(t, path)
	})
}

// TestSuiteOfAGH100: a virtual GPU with the windows of that chip.
func TestSuiteOfAGH100(t *testing.T) {
	eachTransport(t, func(t *testing.T, by maker) {
		card, err := soft.New(soft.Config{VRAM: 5 << 30})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, card.Close()) })
		s, err := serve.NewShared(card, by, vfiouser.Options{}, aggregator.Options{}, driver.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		path := filepath.Join(t.TempDir(), "s")
		e, err := s.Add(serve.GPUConfig{Device: serve.GH100{}, Socket: path,
			Share: aggregator.GuestConfig{Name: "h", VRAM: 4<<30 + gsp.Reserved, Map: aperture.MapAll}})
		require.NoError(t, err)
		suite(t, path)
		require.NoError(t, e.Virtual.Dirty())
	})
}
