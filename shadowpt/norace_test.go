//go:build !race

package shadowpt_test

const (
	someTables  = 2000
	oneIsEnough = false
	rounds      = 2000 // of stores beside looks
)
