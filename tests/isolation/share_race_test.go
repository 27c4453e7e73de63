//go:build race

package isolation

func init() { share = 4 }
