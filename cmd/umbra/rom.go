package main

type romCmd struct {
	Build romBuildCmd `cmd:"" help:"Build an image."`
	Show  romShowCmd  `cmd:"" help:"Show what an image holds, field by field."`
}
