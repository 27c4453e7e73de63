//go:build !race

package devmodel_test

// stride is how far the offsets of BAR0 are apart that are tried one by one.
const stride = 4
