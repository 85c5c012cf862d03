"""Templates that keep state where no namespace holds it, or hand texts to code that reads them past a log.

Out: `ATTACKS`. `{B}` stands for what is done with each message `m`; each is written within a loop over the messages.
"""

_LOOP = "{% for m in messages %}{B}{% endfor %}"

_BODIES = (
    # Objects with a state of their own
    "{% if loop.first %}{% endif %}{{ j() }}{{ m.content }}",
    "{{ c.next() }}{{ m.content }}",
    "{{ c.current }}{{ c.next() }}{{ m.role }}",
    "{% if loop.changed(m.role) %}#{% endif %}{{ m.content }}",
    "{% if loop.changed(m.content) %}#{% endif %}{{ m.role }}",
    "{{ loop.cycle('a', 'b', 'c') }}{{ m.content }}",
    # State of a namespace that a loop wrote, or not
    "{% if m.role == 'tool' %}{% set ns.tool = true %}{% endif %}{{ ns.tool }}{{ m.content }}",
    "{{ ns.last }}{% set ns.last = m.content %}",
    "{{ ns.last }}{% set ns.last = m.role %}",
    "{% set ns.n = ns.n + m.content | length %}{{ ns.n }}",
    "{% set ns.n = ns.n + 1 %}{% if ns.n % 3 == 0 %}#{% endif %}{{ m.content }}",
    "{% set ns.seen = ns.seen + [m.role] %}{{ ns.seen | length }}",
    "{% set ns.seen = ns.seen + [m.content] %}{{ ns.seen | join('|') }}",
    "{% if m.content in ns.text %}#{% endif %}{% set ns.text = ns.text ~ m.content %}",
    "{% if ns.seen is defined and ns.missing is defined %}#{% endif %}{% set ns.missing = 1 %}{{ m.content }}",
    "{% if m.role == 'user' %}{% set ns.flag = not ns.flag %}{% endif %}{{ 'x' if ns.flag else m.content }}",
    # C code that reads texts
    "{{ 'a tide lantern'.find(m.content) }}",
    "{{ 'a tide lantern'.count(m.content) }}",
    "{{ 'tide' if m.content in 'tide lantern user' else '-' }}",
    "{{ 'tide lantern yes'.startswith(m.content) }}",
    "{{ 'a-tide'.replace('tide', m.content) }}",
    "{{ 'a,b'.join([m.content, m.role]) }}",
    "{{ ','.join([m.content]) }}",
    "{{ [m.content, m.role] | join('-') }}",
    "{{ m.content.join(['a', 'b']) }}",
    "{{ 'x %s y' % m.content }}",
    "{{ '%s and %s' % (m.content, m.role) }}",
    "{{ '%(a)s' % {'a': m.content} }}",
    "{{ '%5s|' % m.content }}",
    "{{ m.content % () }}",
    "{{ '{} and {}'.format(m.content, m.role) }}",
    "{{ '{0:>30}'.format(m.content) }}",
    "{{ '{a}'.format_map({'a': m.content}) }}",
    "{{ 'x %s'|format(m.content) }}",
    "{{ m.content | int }}",
    "{{ m.content | float }}",
    "{{ m.content | int + 1 }}",
    "{{ {'yes': 1, 'user': 2}[m.content] }}",
    "{{ {'yes': 1, 'user': 2}.get(m.content, 0) }}",
    "{{ {m.content: 1} }}",
    "{{ {m.content: 1}['yes'] }}",
    "{{ m.content in ['yes', 'tide'] }}",
    "{{ m.content in {'yes': 1} }}",
    "{{ m.content is in ('yes', 'tide') }}",
    "{{ m.content is sameas 'yes' }}",
    "{{ m.content is eq 'yes' }}{{ m.content is lt 'm' }}",
    "{{ m.content < 'm' }}{{ 'm' < m.content }}{{ 'yes' == m.content }}",
    "{{ m.content == messages[0].content }}",
    "{{ m == messages[-1] }}",
    "{{ m in messages[:1] }}",
    "{{ messages.index(m) }}",
    "{{ messages.count(m) }}",
    # Filters
    "{{ m.content | e }}",
    "{{ m.content | escape ~ '<' }}",
    "{{ m.content | safe }}",
    "{{ (m.content | safe) + '<b>' }}",
    "{{ '<' + ('a' | safe) + m.content }}",
    "{{ m.content | hash if false else m.content | string }}",
    "{{ m.content | list | sort | join }}",
    "{{ m.content | list | unique | join }}",
    "{{ m.content | urlencode }}",
    "{{ m.content | wordcount }}{{ m.content | title }}{{ m.content | reverse }}",
    "{{ m.content | batch(3) | list }}",
    "{{ m.content | indent(2) }}{{ m.content | truncate(9) }}",
    "{{ m.content | first }}{{ m.content | last }}{{ m.content | length }}",
    "{{ m.content[::-1] }}{{ m.content[2:5] }}{{ m.content[0] }}",
    # Numbers of other types, which C compares
    "{{ 0.5 < loop.index }}{{ 2.5 < messages | length }}{{ 1.5 + loop.index0 }}",
    "{{ true + loop.index0 }}{{ true == loop.index }}{{ 2 ** loop.index0 }}{{ 7 // loop.index }}{{ 7 / loop.index }}",
    "{{ 'ab' * loop.index }}{{ [1] * loop.index }}{{ range(loop.index) | list }}",
    "{{ -loop.index }}{{ +loop.index }}{{ loop.index | abs }}{{ loop.index ~ '' }}{{ loop.index % 2 }}",
    "{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }}{{ loop.depth }}",
    "{{ 'abcdefghij'[loop.index] }}{{ [1, 2, 3, 4][loop.index0 % 4] }}{{ 'abcdefghijk'[:loop.index] }}",
    # Blankness and white space
    "{{ m.content.strip() or 'none' }}{{ m.content.split() | length }}",
    "{{ m.content.splitlines()[0] }}{{ m.content.split('e')[-1] }}{{ m.content.partition(' ')[2] }}",
    "{% for w in m.content.split(' ') %}{{ w }}{{ loop.index }}{% endfor %}",
    "{% for w in m.content %}{{ loop.index }}{% if w == ' ' %}{% break %}{% endif %}{% endfor %}",
    # Looks at others
    "{{ loop.previtem.content if loop.previtem is defined else '' }}{{ loop.nextitem.role if loop.nextitem else '' }}",
    "{{ messages[loop.index0 - 1].content }}{{ (messages | last).role }}{{ messages[-1].content }}",
    "{% for o in messages %}{% if o.role == m.role %}{{ o.content }}{% endif %}{% endfor %}",
    "{% set ns.x = m.content %}{% for k in [1, 2] %}{{ ns.x }}{% set ns.x = ns.x + '!' %}{% endfor %}{{ ns.x }}",
    "{% macro f(x) %}{{ x }}{{ ns.n }}{% set ns.n = ns.n + 1 %}{% endmacro %}{{ f(m.content) }}",
    "{% set x %}{{ m.content }}!{% endset %}{% if x == 'yes!' %}#{% endif %}{{ x | upper }}",
    "{{ m }}{{ m.items() | list }}{{ m.keys() | list }}{{ m | tojson }}{{ m | length }}",
    "{{ m.get('content', 'x') }}{{ m.pop is defined }}{{ m.content.encode('utf-8') | length }}",
    "{{ m.__class__ }}",
    "{{ m.content.__len__() }}",
    "{{ m._plain }}{{ m.content._expression }}",
)

ATTACKS = tuple(
    "{% set ns = namespace(n=0, last='', seen=[], text='', flag=false, tool=false, x='') %}"
    "{% set j = joiner('+') %}{% set c = cycler('p', 'q') %}" + _LOOP.replace("{B}", body) + "{{ ns.n }}{{ ns.tool }}"
    for body in _BODIES
)
WITHOUT_OBJECTS = tuple(
    "{% set ns = namespace(n=0, last='', seen=[], text='', flag=false, tool=false, x='') %}"
    + _LOOP.replace("{B}", body)
    + "{{ ns.n }}{{ ns.tool }}"
    for body in _BODIES
    if "j()" not in body and "c.next" not in body and "c.current" not in body
)
"""The same without objects whose very making no rule covers, so that what the bodies do is reached."""
