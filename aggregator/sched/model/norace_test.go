//go:build !race

package model_test

const pace = 1
