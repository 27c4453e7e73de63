package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestKills prepares and unprepares claims while the driver and the server are killed, and asks again as the kubelet
// does. Each answer for a claim is the same, and nothing stays.
func TestKills(t *testing.T) {
	r := newRig(t)
	draw := rand.New(rand.NewPCG(3, 4))
	kills := 0
	// ask asks until there is no problem, as the kubelet does. Meanwhile one of the two may be killed.
	ask := func(tries int, request func() string) {
		for problem := "none yet"; problem != "" && tries > 0; tries-- {
			dead, answered := draw.IntN(scale.Of(6, 20)), make(chan string, 1)
			go func() { answered <- request() }()
			if dead < 2 {
				time.Sleep(time.Duration(draw.IntN(12_000)) * time.Microsecond)
				kill([]*exec.Cmd{r.driver, r.server}[dead])
				kills++
			}
			problem = <-answered
			switch dead {
			case 0:
				r.startDriver()
			case 1:
				r.startServer()
			default:
				require.Empty(t, problem)
			}
		}
	}
	for range scale.Of(30, 1000) {
		c := r.placed("", "", "")
		answers, devices := sets.New[string](), []*drapb.Device(nil)
		prepare := func() (problem string) {
			if devices, problem = r.prepare(c); problem == "" {
				answers.Insert(fmt.Sprint(devices))
			}
			return problem
		}
		if draw.IntN(4) == 0 {
			ask(1, prepare) // a pod may end before it was prepared
		} else {
			ask(10, prepare)
			ask(10, prepare)
			// A server that was killed after the answer gets the GPU back without a request.
			r.await(func() error { return r.attach(c, devices) })
		}
		ask(10, func() string { return r.unprepare(c) })
		ask(10, func() string { return r.unprepare(c) })
		require.LessOrEqual(t, len(answers), 1, answers)
		r.requireNothing(t)
		r.delete(c)
	}
	require.NotZero(t, kills)
	t.Logf("%d claims, %d kills", r.claims, kills)
}

// TestSweep starts a driver where another left what no claim owns any more, beside what one still owns.
func TestSweep(t *testing.T) {
	r := newRig(t)
	var claims []*resourceapi.ResourceClaim
	var answers []string
	for range 3 {
		c := r.placed("", "", "")
		devices, problem := r.prepare(c)
		require.Empty(t, problem)
		claims, answers = append(claims, c), append(answers, fmt.Sprint(devices))
	}
	kill(r.driver)
	r.cluster.put(claims[0], false)
	// A driver that was killed halfway left no whole file of this claim.
	r.cluster.put(claims[1], false)
	require.NoError(t, os.Rename(r.cdiPath(claims[1]), r.cdiPath(claims[1])+".unfinished"))
	// What others have here is not the driver's.
	require.NoError(t, os.WriteFile(filepath.Join(r.path("cdi"), "other.json"), []byte("{}"), 0o600))
	r.startDriver()

	there, err := r.status()
	require.NoError(t, err)
	require.Len(t, there.GPUs, 1)
	for folder, want := range map[string]int{"sockets": 1, "cdi": 2} {
		entries, err := os.ReadDir(r.path(folder))
		require.NoError(t, err)
		require.Len(t, entries, want)
	}
	devices, problem := r.prepare(claims[2])
	require.Empty(t, problem)
	require.Equal(t, answers[2], fmt.Sprint(devices))
	require.NoError(t, r.attach(claims[2], devices))

	// The server of a card may be away: its GPUs are, too.
	kill(r.server)
	require.Empty(t, r.unprepare(claims[2]))
	_, problem = r.prepare(claims[2])
	require.Contains(t, problem, "card card0: control socket "+r.path("control")+": its server has ended")
	r.startServer()
	require.Empty(t, r.unprepare(claims[2]))
	require.NoError(t, os.Remove(filepath.Join(r.path("cdi"), "other.json")))
	r.requireNothing(t)
}
