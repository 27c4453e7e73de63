package aggregator

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A request during an operation takes part in the next one.
func TestCoalescerServesAllWaiters(t *testing.T) {
	var tn coalescer
	tn.init()
	begun, resumeChannel := make(chan struct{}, 1), make(chan struct{})
	runs := 0
	run := func(*batch) bool {
		runs++
		begun <- struct{}{}
		<-resumeChannel
		return true
	}
	var wg sync.WaitGroup
	var asked atomic.Int64
	ask := func() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			assert.True(t, tn.do(func(*batch) { asked.Add(1) }, run))
		}()
	}
	ask()
	<-begun
	for range 50 {
		ask()
	}
	require.Eventually(t, func() bool { return asked.Load() == 51 }, patience, tick)
	close(resumeChannel)
	<-begun
	wg.Wait()
	require.Equal(t, 2, runs)
}
