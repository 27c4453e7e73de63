//go:build race

package options

func init() { share = 29 }
