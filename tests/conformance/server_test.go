package conformance

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/conformance"
	"github.com/umbra-gpu/umbra/vfiouser/libvfiouser"
)

// transports are what a device can be served by in this build.
var transports = []struct {
	name string
	make func(vfiouser.Device, vfiouser.Options) (vfiouser.Transport, error)
	skip string
}{
	{name: "native", make: func(d vfiouser.Device, o vfiouser.Options) (vfiouser.Transport, error) {
		return vfiouser.NewServer(d, o)
	}},
	{name: "libvfio-user", make: libvfiouser.New, skip: map[bool]string{false: libvfiouser.ErrNotBuilt.Error()}[libvfiouser.Built]},
}

// eachTransport runs a test for every transport of this build.
func eachTransport(t *testing.T, test func(t *testing.T, make func(vfiouser.Device, vfiouser.Options) (vfiouser.Transport, error))) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			if tr.skip != "" {
				t.Skip(tr.skip)
			}
			test(t, tr.make)
		})
	}
}

// serveAt serves until the test ends, and returns the socket.
func serveAt(t *testing.T, tr vfiouser.Transport) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- tr.ListenAndServe(ctx, path) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-served:
			require.True(t, errors.Is(err, context.Canceled) || errors.Is(err, vfiouser.ErrServerClosed), "%v", err)
		case <-time.After(10 * time.Second):
			t.Error("the server does not end")
		}
		require.NoError(t, tr.Close())
	})
	require.Eventually(t, func() bool {
		select {
		case err := <-served:
			t.Fatal(err)
		default:
		}
		_, err := filepath.EvalSymlinks(path)
		return err == nil
	}, 10*time.Second, time.Millisecond)
	return path
}

// suite runs the suite; a case that fails fails the test. Every finding is in
// the log, the choices apart.
func suite(t *testing.T, o conformance.Options) (passed int) {
	t.Helper()
	var choices, absent []conformance.Result
	n := map[conformance.Outcome]int{}
	err := conformance.Run(t.Context(), o, func(r conformance.Result) {
		n[r.Outcome]++
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
		t.Logf("library's choice: %s: %s: %s", r.Family, r.Name, r.Found)
	}
	for _, r := range absent {
		t.Logf("not applicable: %s: %s: %s", r.Family, r.Name, r.Found)
	}
	t.Logf("%d passed, %d of them choices; %d failed, %d not applicable", n[conformance.Passed], len(choices), n[conformance.Failed], n[conformance.NotApplicable])
	return n[conformance.Passed]
}

// TestSuiteOfEverything: the whole suite on both transports, with the device
// that has something of everything.
func TestSuiteOfEverything(t *testing.T) {
	eachTransport(t, func(t *testing.T, make func(vfiouser.Device, vfiouser.Options) (vfiouser.Transport, error)) {
		dev, err := newEverything()
		require.NoError(t, err)
		t.Cleanup(dev.close)
		tr, err := make(dev, vfiouser.Options{})
		require.NoError(t, err)
		require.Greater(t, suite(t, conformance.Options{Dial: conformance.DialPath(serveAt(t, tr))}), 140)
	})
}

// TestSuiteOfTheCard: the whole suite on both transports, with the software card.
func TestSuiteOfTheCard(t *testing.T) {
	eachTransport(t, func(t *testing.T, make func(vfiouser.Device, vfiouser.Options) (vfiouser.Transport, error)) {
		card, err := soft.New(soft.Config{VRAM: soft.MinVRAM})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, card.Close()) })
		tr, err := make(serve.NewPassThrough(card), vfiouser.Options{})
		require.NoError(t, err)
		require.Greater(t, suite(t, conformance.Options{Dial: conformance.DialPath(serveAt(t, tr))}), 140)
	})
}
