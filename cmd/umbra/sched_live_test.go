package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

const (
	processSrc, processDst = 0x1000_0000, 0x2000_0000
	processPiece           = 256 << 10
)

// newProcess makes a process of a guest: an address space with a channel that copies.
func newProcess(t *testing.T, g *guest.Guest, id int) *guest.Channel {
	t.Helper()
	space, err := g.NewSpace()
	require.NoError(t, err)
	for _, va := range []uint64{processSrc, processDst} {
		b, err := g.AllocVRAM(processPiece)
		require.NoError(t, err)
		require.NoError(t, space.Map(va, b, guest.Big))
	}
	ch, err := g.NewChannel(id, space)
	require.NoError(t, err)
	return ch
}

// checkSums compares each node of a ledger with the sum of its children, by engine.
func checkSums(t *testing.T, n *api.LedgerNode) {
	t.Helper()
	require.Len(t, n.Engines, 3)
	if n.Kind == "channel" {
		require.Empty(t, n.Children)
		return
	}
	waiting, onCard := 0, 0
	for e := range n.Engines {
		var sum sched.Account
		if n.Ended != nil {
			sum = n.Ended[e].Account
		}
		for i := range n.Children {
			sum.Add(&n.Children[i].Engines[e].Account)
			waiting += n.Children[i].Waiting
			onCard += n.Children[i].OnCard
		}
		got := n.Engines[e].Account
		got.Last, sum.Last = 0, 0 // the latest, not a sum
		require.Equal(t, sum, got, "%s %s, %s", n.Kind, n.Name, n.Engines[e].Engine)
	}
	require.Equal(t, waiting, 3*n.Waiting)
	require.Equal(t, onCard, 3*n.OnCard)
	for i := range n.Children {
		checkSums(t, &n.Children[i])
	}
}

// child finds a node below another.
func child(t *testing.T, n *api.LedgerNode, name string) *api.LedgerNode {
	t.Helper()
	for i := range n.Children {
		if n.Children[i].Name == name {
			return &n.Children[i]
		}
	}
	require.Fail(t, "no such node", "%s in %s: %+v", name, n.Name, n)
	return nil
}

// TestSchedulerUnderLoad: the scheduler is changed all the time while two guests with two
// processes each work. Every submission ends and is accounted for once. The accounts add up
// at any time, and in the report at the end.
func TestSchedulerUnderLoad(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	file := path("umbra.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
control: %s
card: {vram: 512MiB}
scheduler: {policy: credit}
gpus:
  - {name: a, socket: %s, vram: 64MiB}
  - {name: b, socket: %s, vram: 64MiB, weight: 300}
`, path("control"), path("a"), path("b")), 0o600))
	server, ctx := serveHere(t, "--json", "--config", file), t.Context()
	k := controlled(t, path("control"), 2)
	guests := make(map[string]*guest.Guest)
	of := make(map[string][]*guest.Channel)
	for _, name := range []string{"a", "b"} {
		g, err := guest.Attach(ctx, path(name), guest.Config{RAM: 1 << 20, Map: true, Timeout: patience})
		require.NoError(t, err)
		guests[name] = g
		for id := range 2 {
			of[name] = append(of[name], newProcess(t, g, 1+id))
		}
	}
	var stop atomic.Bool
	var work sync.WaitGroup
	var errs [2]error
	for i, name := range []string{"a", "b"} {
		work.Go(func() { // one driver, two processes
			for !stop.Load() && errs[i] == nil {
				for j, ch := range of[name] {
					for range 1 + i*3 + j {
						errs[i] = errors.Join(errs[i], ch.Copy(guest.M2MF, processDst, processSrc, processPiece))
					}
				}
				for _, ch := range of[name] {
					errs[i] = errors.Join(errs[i], ch.Finish())
				}
			}
		})
	}
	schedule := config.Default().Schedule()
	words := append(sched.Policies(), "credit")
	for round, policy := range append(words, words...) {
		text := []string{"policy=" + policy, fmt.Sprint("depth=", 1+round%4), "credit.period=" + []string{"1ms", "30ms"}[round%2]}
		if round%5 == 4 { // all others, to what they are by default
			text = nil
			for _, o := range config.Settings(&schedule) {
				if o.Key != "policy" {
					text = append(text, o.Key+"="+o.Value)
				}
			}
		}
		var printed, wrong bytes.Buffer
		require.Equal(t, exitOK, doMain(ctx, append([]string{"sched", "set", "--control", path("control"), "--json"}, text...), &printed, &wrong), wrong.String())
		var s api.Scheduler
		require.NoError(t, json.Unmarshal(printed.Bytes(), &s))
		checkSums(t, s.Ledger)
		_, err := k.Set(ctx, "a", api.SetRequest{Options: fmt.Sprintf("weight=%d", 1+100*round)})
		require.NoError(t, err)
		before := api.Total(s.Ledger.Engines).Done
		require.Eventually(t, func() bool { // until the new schedule has finished work
			now, err := k.Scheduler(ctx)
			return err == nil && api.Total(now.Ledger.Engines).Done >= before+20
		}, patience, time.Millisecond)
	}
	stop.Store(true)
	work.Wait()
	require.NoError(t, errors.Join(errs[:]...))

	// Every submission has ended, and is in the account of its channel.
	var s api.Scheduler
	require.Eventually(t, func() (quiet bool) {
		now, err := k.Scheduler(ctx)
		if err != nil { // not the test's goroutine
			return false
		}
		s = now
		return s.Ledger.Waiting+s.Ledger.OnCard == 0
	}, patience, time.Millisecond)
	checkSums(t, s.Ledger)
	sent := map[string]int64{}
	for name := range guests {
		g := child(t, s.Ledger, name)
		require.Len(t, g.Children, 2)
		require.Equal(t, "kernel", g.Children[0].Name)
		require.Regexp(t, "^space-0x", g.Children[1].Name)
		for i, ch := range of[name] {
			c := child(t, &g.Children[i], fmt.Sprint("channel ", 1+i))
			a := api.Total(c.Engines)
			entries := int64(ch.Ring().Size / gf100.GPEntrySize)
			require.EqualValues(t, ch.USERD(gf100.USERDGPPut), a.Entries%entries, "%s's submissions, round the ring", c.Name)
			require.Equal(t, a.Entries, a.Done)
			require.Positive(t, a.Busy)
			sent[name] += a.Done
		}
	}
	t.Logf("submissions done: %v, while the scheduler was changed %d times", sent, 2*len(words))
	b := child(t, s.Ledger, "b")
	require.Equal(t, []int{300, 100, 100}, []int{b.Weight, b.Children[0].Weight, b.Children[1].Weight})
	for name, n := range s.Counts {
		require.Zero(t, n, name)
	}

	// Processes end; their accounts stay.
	for _, name := range []string{"a", "b"} {
		for _, ch := range of[name] {
			require.NoError(t, ch.Close())
		}
	}
	require.Eventually(t, func() bool { // until the guests' goroutines have removed them
		now, err := k.Scheduler(ctx)
		if err != nil {
			return false
		}
		s = now
		return !slices.ContainsFunc(s.Ledger.Children, func(g api.LedgerNode) bool { return len(g.Children) > 0 })
	}, patience, time.Millisecond)
	for name := range guests {
		g := child(t, s.Ledger, name)
		require.Equal(t, sent[name], api.Total(g.Ended).Done)
	}
	checkSums(t, s.Ledger)
	var shown bytes.Buffer
	require.Equal(t, exitOK, doMain(ctx, []string{"sched", "show", "--control", path("control")}, &shown, new(bytes.Buffer)))
	require.Regexp(t, `(?m)^      \(ended\) +100\.0 % `, shown.String())
	for _, g := range guests {
		require.NoError(t, g.Close())
	}
	lines := server.end()
	var report api.Report
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &report))
	checkSums(t, report.Ledger)
	for name := range guests {
		require.Equal(t, sent[name], api.Total(child(t, report.Ledger, name).Engines).Done)
	}
}
