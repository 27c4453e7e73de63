//go:build race

package isolation

func init() { share, offsets = 4, 61 }
