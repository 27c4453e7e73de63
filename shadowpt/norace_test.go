//go:build !race

package shadowpt_test

const (
	someTables  = 2000
	oneIsEnough = false
)
