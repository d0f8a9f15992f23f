# docker build -t jigsaw .
# docker run --rm jigsaw solve server/demo --time-limit 20 --timeline
# docker run --rm -v "$PWD:/work" -u "$(id -u):$(id -g)" jigsaw solve rack/plain --time-limit 10 -o plan.json
FROM python:3.11 AS build
WORKDIR /source
COPY constraints.txt pyproject.toml setup.py README.md LICENSE NOTICE ./
COPY jigsaw_opt jigsaw_opt
RUN python -m venv /opt/jigsaw \
    && /opt/jigsaw/bin/pip install --no-cache-dir -c constraints.txt '.[plot]'

FROM python:3.11-slim
COPY --from=build /opt/jigsaw /opt/jigsaw
ENV PATH=/opt/jigsaw/bin:$PATH PYTHONUNBUFFERED=1 HOME=/home/jigsaw MPLCONFIGDIR=/tmp/matplotlib
RUN useradd --create-home jigsaw && mkdir /work /home/jigsaw/.cache && chown jigsaw /work /home/jigsaw/.cache
USER jigsaw
WORKDIR /work
ENTRYPOINT ["jigsaw"]
CMD ["--help"]
