package soft_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	waitFor = 5 * time.Second
	tick    = 50 * time.Microsecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
