package main

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	ok      = porcupine.Ok
	illegal = porcupine.Illegal
)

func judged(t *testing.T, history string) porcupine.CheckResult {
	t.Helper()
	operations, err := read(strings.NewReader(history))
	if err != nil {
		t.Fatal(err)
	}
	plain := porcupine.CheckOperationsTimeout(plainModel(), operations, time.Minute)
	quick := porcupine.CheckOperationsTimeout(quickModel(operations, false), operations, time.Minute)
	if plain != quick {
		t.Fatalf("the plain model says %s, the quick one %s:\n%s", plain, quick, history)
	}
	return quick
}

func TestTheMisfitIsTheFirstAnswerThatDoesNotFit(t *testing.T) {
	operations, err := read(strings.NewReader(lines("0 1 2 add 5 replied 5", "1 3 4 add 2 replied 7", "2 5 6 add 3 replied 3",
		"0 7 8 get 0 replied 7", "1 9 10 add 1 replied 8")))
	if err != nil {
		t.Fatal(err)
	}
	result, _, explained, odd := check(operations, time.Minute, false)
	if want := "client 2, 0.000 to 0.000 s: add 3 -> 3"; result != illegal || explained != 2 || odd != want {
		t.Errorf("%s, %d explained, %s", result, explained, odd)
	}
}

// Each operation is "client call return op argument outcome result".
func lines(operations ...string) string {
	var all strings.Builder
	for _, text := range operations {
		var client, call, back, argument, result int
		var op, outcome string
		if _, err := fmt.Sscan(text, &client, &call, &back, &op, &argument, &outcome, &result); err != nil {
			panic(text)
		}
		fmt.Fprintf(&all, `{"client":%d,"call":%d,"return":%d,"op":%q,"argument":%d,"outcome":%q,"result":%d}`+"\n",
			client, call, back, op, argument, outcome, result)
	}
	return all.String()
}

func TestInventedHistories(t *testing.T) {
	for name, each := range map[string]struct {
		want       porcupine.CheckResult
		operations []string
	}{
		"one after the other":       {ok, []string{"0 1 2 add 5 replied 5", "1 3 4 get 0 replied 5", "0 5 6 add 2 replied 7"}},
		"concurrent, either order":  {ok, []string{"0 1 9 add 5 replied 7", "1 1 9 add 2 replied 2"}},
		"unknown takes effect late": {ok, []string{"0 1 2 add 5 unknown 0", "1 3 4 get 0 replied 0", "1 5 6 get 0 replied 5"}},
		"unknown never happens":     {ok, []string{"0 1 2 add 5 unknown 0", "1 3 4 add 2 replied 2", "1 5 6 get 0 replied 2"}},
		"unknown, between two adds": {ok, []string{"0 1 2 add 5 unknown 0", "1 3 4 add 2 replied 2", "1 5 6 add 1 replied 8"}},
		"an unanswered get":         {ok, []string{"0 1 2 get 0 unknown 0", "1 3 4 add 2 replied 2"}},
		"lost update":               {illegal, []string{"0 1 2 add 5 replied 5", "1 3 4 add 2 replied 2"}},
		"lost at the end":           {illegal, []string{"0 1 2 add 5 replied 5", "1 3 4 get 0 replied 0"}},
		"stale read":                {illegal, []string{"0 1 2 add 5 replied 5", "1 3 4 add 2 replied 7", "2 5 6 get 0 replied 5"}},
		"read goes back":            {illegal, []string{"0 1 9 add 5 replied 5", "1 2 3 get 0 replied 5", "2 4 5 get 0 replied 0"}},
		"double add":                {illegal, []string{"0 1 2 add 5 replied 5", "1 3 4 get 0 replied 10"}},
		"unknown added twice":       {illegal, []string{"0 1 2 add 5 unknown 0", "1 3 4 get 0 replied 5", "1 5 6 get 0 replied 10"}},
		"a read from the future":    {illegal, []string{"1 1 2 get 0 replied 5", "0 3 4 add 5 replied 5"}},
		"it did happen":             {illegal, []string{"0 1 2 add 5 did-not-happen 0", "1 3 4 get 0 replied 5"}},
		"two counters": {illegal, []string{"0 1 2 add 5 replied 5", "1 3 4 add 2 replied 2", "0 5 6 add 1 replied 6",
			"1 7 8 get 0 replied 2"}},
	} {
		if got := judged(t, lines(each.operations...)); got != each.want {
			t.Errorf("%s: %s instead of %s", name, got, each.want)
		}
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	for _, text := range []string{"{", lines("0 1 2 sub 5 replied 5"), lines("0 1 2 add 0 replied 5"), lines("0 2 1 get 0 replied 5"),
		lines("0 1 2 get 0 perhaps 5"), `{"client":0,"call":1,"return":2,"op":"get","outcome":"replied"}`} {
		if _, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("no error for %s", text)
		}
	}
}

// invented makes a history of a correct counter, and spoils it by the kind of mistake. One operation in `unclear` is an
// add with unknown outcome; half of these take effect.
func invented(random *rand.Rand, operations, mistake, unclear int, least, spread int) string {
	var all []string
	sum, now := 0, 10
	for i := range operations {
		now += 2 + random.Intn(8)
		number := least + random.Intn(spread)
		call, back := now-random.Intn(9), now+random.Intn(9)
		kind := 2 + random.Intn(3)
		if random.Intn(unclear) == 0 {
			kind = random.Intn(2)
		}
		switch kind {
		case 2:
			read := sum
			if mistake == 1 && i == operations-1 {
				read -= number
			}
			all = append(all, fmt.Sprintf("%d %d %d get 0 replied %d", i, call, back, read))
		case 0:
			sum += number
			all = append(all, fmt.Sprintf("%d %d %d add %d unknown 0", i, call, back, number))
		case 1:
			all = append(all, fmt.Sprintf("%d %d %d add %d unknown 0", i, call, back, number))
		default:
			sum += number
			all = append(all, fmt.Sprintf("%d %d %d add %d replied %d", i, call, back, number, sum))
			if mistake == 2 && i == operations/2 {
				sum -= number
			}
			if mistake == 3 && i == operations/2 {
				sum += number
			}
		}
	}
	return lines(all...)
}

// The quick model refuses nothing that the plain one would accept: `judged` compares them.
func TestBothModelsAgree(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	found := map[porcupine.CheckResult]int{}
	for i := range 4000 {
		found[judged(t, invented(random, 4+i%6, i%4, 2, 1, 1+i%7))]++
	}
	if found[ok] < 500 || found[illegal] < 200 {
		t.Errorf("the histories are not mixed: %v", found)
	}
}

// The numbers of a trial are all between half of a limit and the limit, as in torture/run.
func TestManyUnknownAddsAreJudgedSoon(t *testing.T) {
	random := rand.New(rand.NewSource(2))
	found := map[porcupine.CheckResult]int{}
	for i := range 20 {
		operations, err := read(strings.NewReader(invented(random, 2000, i%4, 10, 1<<39, 1<<39)))
		if err != nil {
			t.Fatal(err)
		}
		result := porcupine.CheckOperationsTimeout(quickModel(operations, false), operations, 20*time.Second)
		if found[result]++; i%4 == 0 && result != ok {
			t.Errorf("%s instead of %s", result, ok)
		}
	}
	if found[porcupine.Unknown] > 0 || found[illegal] < 3 {
		t.Errorf("verdicts: %v", found)
	}
}
