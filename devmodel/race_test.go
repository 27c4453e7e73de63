//go:build race

package devmodel_test

// stride is how far the offsets of BAR0 are apart that are tried one by one. The race
// detector has nothing to find there: there is one goroutine. It is prime to the sizes
// of blocks, in dwords, so it meets each of their places somewhere.
const stride = 4 * 67
