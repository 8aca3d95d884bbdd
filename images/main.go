package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; what was finished before is complete")
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

// defaultPlatforms are the platforms of which images are built.
var defaultPlatforms = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}

// options are the flags.
type options struct {
	output, platforms, only, version, tag, push, prefix string
	archives                                            bool
}

func parseOptions(args []string, usage io.Writer) (*options, error) {
	var o options
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.output, "output", filepath.Join("bin", "images"), "directory for the images")
	flags.StringVar(&o.platforms, "platform", "", "platforms to build for, separated by commas (default "+listOf(defaultPlatforms)+")")
	flags.StringVar(&o.only, "only", "", "programs to build, separated by commas (default all)")
	flags.StringVar(&o.version, "version", "", "version of Cellplane (default from git)")
	flags.StringVar(&o.tag, "tag", "", "tag of all images (default the version of each program)")
	flags.StringVar(&o.push, "push", "", "registry and path below which the images are also pushed, such as registry.example.com/cellplane")
	flags.StringVar(&o.prefix, "prefix", "localhost/cellplane", "registry and path in the names of archived images, without -push")
	flags.BoolVar(&o.archives, "tar", false, "also write an archive of each image, for `ctr images import`")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(usage, "Builds OCI images of Cellplane, etcd and Kubernetes. Flags:")
		flags.SetOutput(usage)
		flags.PrintDefaults()
	}
	if err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: there are only flags, see -help", flags.Arg(0))
	}
	if o.tag != "" && !tag.MatchString(o.tag) {
		return nil, fmt.Errorf("-tag: %q cannot be the tag of an image: up to 128 letters, digits, dots, dashes and underscores", o.tag)
	}
	o.push, o.prefix = strings.TrimSuffix(o.push, "/"), strings.TrimSuffix(o.prefix, "/")
	if o.push != "" {
		o.prefix = o.push
		return &o, checkPrefix("-push", o.push)
	}
	return &o, checkPrefix("-prefix", o.prefix)
}

func run(ctx context.Context, args []string, out, messages io.Writer) error {
	o, err := parseOptions(args, messages)
	if err != nil {
		return err
	}
	platforms, err := parsePlatforms(o.platforms)
	if err != nil {
		return err
	}
	created, err := sourceDate(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	all, err := allPrograms(ctx, ".", o.version)
	if err != nil {
		return err
	}
	chosen, err := choose(all, o.only)
	if err != nil {
		return err
	}
	b := &builder{platforms: platforms, output: o.output, tag: o.tag, created: created, log: func(format string, args ...any) {
		fmt.Fprintf(messages, format+"\n", args...)
	}}
	return b.all(ctx, o, chosen, out)
}

// all builds, archives and pushes programs one after the other, and prints a line about each image.
func (b *builder) all(ctx context.Context, o *options, programs []program, out io.Writer) error {
	var finished []*built
	for i := range programs {
		done, err := b.build(ctx, &programs[i])
		if err != nil {
			return err
		}
		finished = append(finished, done)
		if o.archives {
			if err := writeArchive(done, o.prefix, filepath.Join(b.output, programs[i].name+".tar"), b.created); err != nil {
				return err
			}
		}
	}
	// Nothing is pushed before everything is built.
	for _, done := range finished {
		if o.push == "" {
			break
		}
		b.log("pushing %s/%s:%s", o.push, done.program.name, done.tag)
		if err := push(ctx, done, o.push); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tPLATFORM\tMIB\tDIGEST")
	for _, done := range finished {
		reference := done.program.name + ":" + done.tag
		fmt.Fprintf(table, "%s\t%s\t\t%s\n", reference, "index", done.index)
		for _, image := range done.images {
			fmt.Fprintf(table, "%s\t%s\t%.1f\t%s\n", reference, image.platform, float64(image.size)/(1<<20), image.digest)
		}
	}
	return table.Flush()
}

func parsePlatforms(given string) ([]v1.Platform, error) {
	if given == "" {
		return defaultPlatforms, nil
	}
	var platforms []v1.Platform
	for text := range strings.SplitSeq(given, ",") {
		i := slices.IndexFunc(defaultPlatforms, func(p v1.Platform) bool { return p.String() == strings.TrimSpace(text) })
		if i < 0 {
			return nil, fmt.Errorf("-platform: %q is not supported; choose from %s", text, listOf(defaultPlatforms))
		}
		if platform := defaultPlatforms[i]; !slices.ContainsFunc(platforms, func(p v1.Platform) bool { return p.String() == platform.String() }) {
			platforms = append(platforms, platform)
		}
	}
	// The order of a list does not change the digest of an index.
	slices.SortFunc(platforms, func(a, b v1.Platform) int { return strings.Compare(a.String(), b.String()) })
	return platforms, nil
}

func listOf(platforms []v1.Platform) string {
	var names []string
	for _, platform := range platforms {
		names = append(names, platform.String())
	}
	return strings.Join(names, ",")
}

// choose returns the programs with the given names, or all.
func choose(all []program, only string) ([]program, error) {
	if only == "" {
		return all, nil
	}
	var chosen []program
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
	wanted := strings.Split(only, ",")
	for i := range wanted {
		wanted[i] = strings.TrimSpace(wanted[i])
		if !slices.Contains(names, wanted[i]) {
			return nil, fmt.Errorf("-only: there is no program %q; choose from %s", wanted[i], strings.Join(names, ", "))
		}
	}
	for _, p := range all {
		if slices.Contains(wanted, p.name) {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

// sourceDate returns the time of all files and images: $SOURCE_DATE_EPOCH, or the beginning of 1970.
func sourceDate(seconds string) (time.Time, error) {
	if seconds == "" {
		return time.Unix(0, 0).UTC(), nil
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || number < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be a number of seconds since 1970, not %q", seconds)
	}
	return time.Unix(number, 0).UTC(), nil
}
