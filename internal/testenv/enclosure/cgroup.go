package enclosure

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// controllers are those of cgroup v1 that a kubelet needs.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio"}

// cgroup is a directory in one hierarchy of cgroups.
type cgroup struct {
	// Mount is where the hierarchy is mounted, Kind its type, cgroup or cgroup2, and Options select its controllers.
	Mount, Kind, Options string
	// Parent and Path are directories below the mount.
	Parent, Path string
}

// hierarchies returns the cgroups of this process in all hierarchies, as Parent.
func hierarchies() ([]cgroup, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(mounts), string(own))
}

// parseHierarchies combines /proc/self/mountinfo and /proc/self/cgroup.
func parseHierarchies(mounts, own string) ([]cgroup, error) {
	paths := map[string]string{} // of a controller, by its name; "" is cgroup2
	for line := range strings.Lines(own) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("/proc/self/cgroup has the line %q", line)
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			paths[controller] = fields[2]
		}
	}
	var all []cgroup
	scanner := bufio.NewScanner(strings.NewReader(mounts))
	for scanner.Scan() {
		before, after, found := strings.Cut(scanner.Text(), " - ")
		place, kind := strings.Fields(before), strings.Fields(after)
		if !found || len(place) < 5 || len(kind) < 3 || (kind[0] != "cgroup" && kind[0] != "cgroup2") {
			continue
		}
		c := cgroup{Mount: place[4], Kind: kind[0]}
		var selecting []string
		for option := range strings.SplitSeq(kind[2], ",") {
			if slices.Contains(controllers, option) || strings.HasPrefix(option, "name=") || paths[option] != "" {
				selecting = append(selecting, option)
			}
		}
		controller := ""
		if c.Kind == "cgroup" {
			if len(selecting) == 0 {
				continue
			}
			controller = selecting[0]
			if strings.HasPrefix(controller, "name=") {
				selecting = append([]string{"none"}, selecting...)
			}
			c.Options = strings.Join(selecting, ",")
		}
		path, known := paths[controller]
		if !known || slices.ContainsFunc(all, func(other cgroup) bool { return other.Kind == c.Kind && other.Options == c.Options }) {
			continue
		}
		// In a container, the path may be that of the host, and the mount begin below it.
		if rel, err := filepath.Rel(place[3], path); err == nil && !strings.HasPrefix(rel, "..") {
			c.Parent = rel
		} else {
			c.Parent = "."
		}
		all = append(all, c)
	}
	return all, scanner.Err()
}

// newCgroups returns cgroups of the given name below those of this process, in each hierarchy, for create.
func newCgroups(name string) ([]cgroup, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Path = filepath.Join(all[i].Parent, name)
	}
	return all, nil
}

func (c *cgroup) create() error {
	if err := os.Mkdir(c.dir(), 0o755); err != nil {
		return fmt.Errorf("creating a cgroup: %w", err)
	}
	if !slices.Contains(strings.Split(c.Options, ","), "cpuset") {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // without them, no process can enter
		content, err := os.ReadFile(filepath.Join(c.Mount, c.Parent, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(c.dir(), file), content, 0o644)
		}
		if err != nil {
			return fmt.Errorf("creating a cgroup: %w", err)
		}
	}
	return nil
}

func (c *cgroup) dir() string { return filepath.Join(c.Mount, c.Path) }

func (c *cgroup) join() error {
	if err := os.WriteFile(filepath.Join(c.dir(), "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("entering a cgroup: %w", err)
	}
	return nil
}

// removeCgroup removes a cgroup and those below it. None may have processes.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeCgroup(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		processes, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		return fmt.Errorf("removing the cgroup %s with the processes %q: %w", dir, strings.Fields(string(processes)), err)
	}
	return nil
}
