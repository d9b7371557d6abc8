// Judge reads the history of a counter and says whether it is linearizable. The check is porcupine's.
//
// Each line of the history is a JSON object:
//
//	{"client":0,"call":1000,"return":2000,"op":"add","argument":5,"outcome":"replied","result":5}
//
// `call` and `return` are nanoseconds of one clock. `outcome` is "replied", "unknown" (the operation may take effect at
// any time after its call, or never) or "did-not-happen". An `add` takes a positive argument.
//
// Exit status: 0 linearizable, 1 not linearizable, 2 the check took too long, 3 the history cannot be read.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Client   int    `json:"client"`
	Call     int64  `json:"call"`
	Return   int64  `json:"return"`
	Op       string `json:"op"`
	Argument int64  `json:"argument"`
	Outcome  string `json:"outcome"`
	Result   *int64 `json:"result"`
}

type verdict struct {
	Verdict    string `json:"verdict"`
	Operations int    `json:"operations"`
	TookMs     int64  `json:"took_ms"`
	Explained  int    `json:"explained"`
	Misfit     string `json:"misfit,omitempty"`
}

// Time to look for the place where a history goes wrong: 10 s.
const picturing = 10 * time.Second

var status = map[porcupine.CheckResult]int{porcupine.Ok: 0, porcupine.Illegal: 1, porcupine.Unknown: 2}
var word = map[porcupine.CheckResult]string{
	porcupine.Ok: "ok", porcupine.Illegal: "illegal", porcupine.Unknown: "timeout",
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "give up after this time")
	html := flag.String("html", "", "write a picture of the history to this file unless the verdict is ok")
	plain := flag.Bool("plain", false, "use the counter's model without refusing hopeless steps early")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: judge [options] HISTORY")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(3)
	}
	file, err := os.Open(flag.Arg(0))
	if err != nil {
		fail(err)
	}
	history, err := read(file)
	if err != nil {
		fail(err)
	}
	begin := time.Now()
	result, picture, explained, odd := check(history, *timeout, *plain)
	said := verdict{Verdict: word[result], Operations: len(history), Explained: explained, Misfit: odd}
	said.TookMs = time.Since(begin).Milliseconds()
	if result != porcupine.Ok && *html != "" {
		if err := picture(*html); err != nil {
			fail(err)
		}
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	_ = out.Encode(said)
	os.Exit(status[result])
}

// check judges the history. Without a good verdict it also returns how far one order gets, and the answer that stops it.
func check(history []porcupine.Operation, timeout time.Duration, plain bool) (
	result porcupine.CheckResult, picture func(path string) error, explained int, odd string,
) {
	model := quickModel(history, false)
	if plain {
		model = plainModel()
	}
	result = porcupine.CheckOperationsTimeout(model, history, timeout)
	if result == porcupine.Ok {
		return result, nil, len(history), ""
	}
	far := quickModel(history, true)
	_, info := porcupine.CheckOperationsVerbose(far, history, picturing)
	explained, odd = misfit(history, info)
	return result, func(path string) error { return porcupine.VisualizePath(far, info, path) }, explained, odd
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "judge:", err)
	os.Exit(3)
}

// read returns the operations that have taken effect or may have. A get without an answer says nothing.
func read(from io.Reader) ([]porcupine.Operation, error) {
	var history []porcupine.Operation
	var end int64
	lines := bufio.NewScanner(from)
	for number := 1; lines.Scan(); number++ {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if l.Op != "add" && l.Op != "get" || l.Op == "add" && l.Argument <= 0 || l.Return < l.Call {
			return nil, fmt.Errorf("line %d: an add of a positive number or a get, with its return after its call, is needed", number)
		}
		end = max(end, l.Return)
		operation := porcupine.Operation{ClientId: l.Client, Call: l.Call, Return: l.Return}
		operation.Input = request{get: l.Op == "get", number: l.Argument}
		if l.Op == "get" {
			operation.Input = request{get: true}
		}
		switch {
		case l.Outcome == "replied" && l.Result != nil:
			operation.Output = answer{known: true, sum: *l.Result}
		case l.Outcome == "unknown":
			operation.Output = answer{}
		case l.Outcome == "did-not-happen":
			continue
		default:
			return nil, fmt.Errorf("line %d: outcome %q without a result is not known", number, l.Outcome)
		}
		if operation.Output.(answer).known || l.Op == "add" {
			history = append(history, operation)
		}
	}
	for i := range history {
		if !history[i].Output.(answer).known {
			history[i].Return = end + 1
		}
	}
	return history, lines.Err()
}

// misfit returns the greatest number of operations that one order explains, and the earliest answered operation that
// this order lacks.
func misfit(history []porcupine.Operation, info porcupine.LinearizationInfo) (int, string) {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	explained := map[int]bool{}
	for _, id := range longest {
		explained[id] = true
	}
	first := -1
	for id, operation := range history {
		known := operation.Output.(answer).known
		if known && !explained[id] && (first < 0 || operation.Return < history[first].Return) {
			first = id
		}
	}
	if first < 0 {
		return len(longest), ""
	}
	odd := history[first]
	text := describe(odd.Input.(request), odd.Output.(answer))
	return len(longest), fmt.Sprintf("client %d, %.3f to %.3f s: %s", odd.ClientId, float64(odd.Call)/1e9, float64(odd.Return)/1e9, text)
}
